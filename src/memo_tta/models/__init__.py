"""Classifiers: modules with their preprocessing, and the ones that have a name."""
