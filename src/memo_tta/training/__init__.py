"""Training of the models that are shipped."""
