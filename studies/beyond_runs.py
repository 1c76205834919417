"""Run the experiments of docs/beyond.md; a second start resumes: python -m studies.beyond_runs --help."""

from collections.abc import Iterator
from pathlib import Path

from studies.reproduction_runs import Cifar, Step, authors_command

METHODS = "source,tta,memo,restore"


def restore_on_cifar(cifar: Cifar) -> Iterator[Step]:
    """Yield `restore` on the images on which the reproduction evaluates the other methods."""
    yield cifar.clean()
    yield cifar.corrupted()
    yield cifar.evaluate("restore", "restore")
    yield cifar.evaluate("restore-c", "restore", "--severities", "1,3,5", "--limit", "500")


def timing(cifar: Cifar) -> Iterator[Step]:
    """Yield evaluations with one worker, in which all methods see the same few images."""
    yield cifar.evaluate("time", METHODS, "--limit", "300", "--workers", "1")
    yield cifar.evaluate("time-c", METHODS, "--severities", "5", "--limit", "20", "--workers", "1")


def steps(authors: Path | None) -> Iterator[Step]:
    """Yield all experiments."""
    published = [] if authors is None else [Cifar("authors", authors)]
    for cifar in published:
        yield from timing(cifar)
        yield from restore_on_cifar(cifar)
    yield from restore_on_cifar(Cifar("shipped", None))


main = authors_command(steps, __doc__)

if __name__ == "__main__":
    main()
