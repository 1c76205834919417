"""The runs behind docs/beyond.md, which resume: python -m studies.beyond_runs --help."""

from collections.abc import Iterator
from pathlib import Path

from memo_tta.methods import METHODS as TABLE
from studies.reproduction_runs import NETWORKS, PICTURE_SHIFTS, Cifar, Step, resuming

METHODS = "source,tta,memo,restore"
# The best one of studies.choose_step: `restore` with a gradient step is memo on restored views.
STEP = {**TABLE["restore"].defaults, "prior_strength": None, "lr": 0.005, "predict": "group"}


def of_cifar(cifar: Cifar) -> Iterator[Step]:
    """`restore` on what the reproduction shows the other methods."""
    yield cifar.clean()
    yield cifar.corrupted()
    yield cifar.evaluate("restore", "restore")
    yield cifar.evaluate("restore-c", "restore", "--severities", "1,3,5", "--limit", "500")


def of_step(cifar: Cifar) -> Step:
    """With a gradient step."""
    options = (f"{name}={'none' if value is None else value}" for name, value in STEP.items())
    words = [word for option in options for word in ("--option", option)]
    return cifar.evaluate("stepped-c", "memo", "--severities", "5", "--limit", "500", *words)


def of_time(cifar: Cifar) -> Iterator[Step]:
    """All methods on the same few points, one after the other, for their times."""
    yield cifar.evaluate("time", METHODS, "--limit", "300", "--workers", "1")
    yield cifar.evaluate("time-c", METHODS, "--severities", "5", "--limit", "20", "--workers", "1")


def of_pictures(network: str, pictures: Path) -> Iterator[Step]:
    """On what the reproduction shows the other methods."""
    words = ("evaluate", str(pictures), "--model", network, "--methods", "source,restore", "--limit", "100")
    corruptions, levels = PICTURE_SHIFTS
    yield Step(f"{network}/clean-restore", words)
    shifts = ("--corruptions", corruptions, "--severities", levels)
    yield Step(f"{network}/corrupted-restore", (*words, *shifts))


def steps(out: Path, authors: Path | None, pictures: Path | None) -> Iterator[Step]:
    published = [] if authors is None else [Cifar("authors", authors)]
    for cifar in published:
        yield from of_time(cifar)
        yield from of_cifar(cifar)
        yield of_step(cifar)
    yield from of_cifar(Cifar("shipped", None))
    if pictures is not None:
        for network in NETWORKS:
            yield from of_pictures(network, pictures)


if __name__ == "__main__":
    resuming(steps, __doc__)()
