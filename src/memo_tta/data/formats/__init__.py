"""Readers for the published file layouts."""
