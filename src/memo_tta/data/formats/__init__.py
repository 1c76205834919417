"""Readers of the published file layouts."""
