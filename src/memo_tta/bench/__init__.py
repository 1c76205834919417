"""The speed suite: ratios within one run, printed by `memo bench`."""
