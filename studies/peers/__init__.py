"""This package beside its peers, by `python -m studies.peers.study`.

`study` is the command. `environment` installs the peers; `checks`, `measurement` and `corruption_differences`
run where they are installed; `results` and `page` make docs/peers.md of what those print.
"""
