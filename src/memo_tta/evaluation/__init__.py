"""Evaluation: the one place where labels meet predictions."""
