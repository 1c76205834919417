"""Time to run `memo --help`."""

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from memo_tta.bench.measurement import Measurement, interleaved

ROUNDS, BAR = 9, 0.3


def run() -> Iterator[Measurement]:
    def python(code: str) -> object:
        return subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)

    seconds = interleaved(
        ROUNDS,
        bare=lambda: python("pass"),
        help=lambda: python("from memo_tta.cli import main; main(['--help'])"),
    )
    yield Measurement(
        "memo --help",
        median(seconds["help"]),
        BAR,
        "s",
        f"including {median(seconds['bare']):.3f} s to start Python",
    )
