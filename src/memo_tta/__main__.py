"""`python -m memo_tta` is the command `memo`."""

from memo_tta.cli import main

if __name__ == "__main__":
    main()
