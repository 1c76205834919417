"""Experiments behind the figures in docs/; `python -m studies.NAME --help` describes each of them.

All modules are commands, except `page_markers` and `result_files`, which they share. `peers` is a package
with the command `peers.study`.
"""
