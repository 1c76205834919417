"""Data sets: reading, corrupting and downloading them."""
