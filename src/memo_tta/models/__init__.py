"""Classifiers: modules with their preprocessing and labels, built by the user or loaded by name."""
