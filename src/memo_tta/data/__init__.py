"""Data sets: what they hold, where they lie, how to get them."""
