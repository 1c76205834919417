"""The command `python -m studies.reference`."""

from studies.reference import main

main()
