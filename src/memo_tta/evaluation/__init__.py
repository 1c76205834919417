"""Evaluate methods on labelled data: the only place where targets meet predictions."""
