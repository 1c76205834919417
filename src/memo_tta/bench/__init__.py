"""The speed suite behind `memo bench`."""
