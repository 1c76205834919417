"""Run the command `memo` as `python -m memo_tta`."""

from memo_tta.cli import main

if __name__ == "__main__":
    main()
