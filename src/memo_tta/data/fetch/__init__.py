"""Downloading data sets: sources, checksums, unpacking."""
