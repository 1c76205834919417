"""Experiments behind the figures in docs/: each module is a command that resumes."""
