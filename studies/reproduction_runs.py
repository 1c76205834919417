"""The paper's experiments, as commands that resume: python -m studies.reproduction_runs --help."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
NETWORKS = ("efficientnet_lite0", "mobilenet_v2")  # with real ImageNet weights
PICTURE_METHODS = "source,tta,bn1,memo,tent-bs1"
PICTURE_VIEWS = "16"
TUNING = ("--limit", "20", "--n-views", "8")  # half the views: this only compares options
PICTURE_SHIFTS = ("gaussian_noise,motion_blur,contrast,jpeg_compression", "3,5")


@dataclass(frozen=True)
class Step:
    """A command of `memo`, and what it fills: a folder of records, or a file."""

    name: str
    words: tuple[str, ...]

    def command(self, out: Path) -> list[str]:
        return ["memo", *self.words, "--out", str(out / self.name)]


Steps = Callable[[Path, Path | None, Path | None], Iterator[Step]]  # of OUT, --authors and --pictures


@dataclass(frozen=True)
class Cifar:
    """What is asked of one ResNet-26."""

    name: str
    weights: Path | None

    def evaluate(self, run: str, methods: str, *words: str) -> Step:
        given = () if self.weights is None else ("--weights", str(self.weights))
        model = ("evaluate", "cifar10", "--model", "resnet26", *given)
        return Step(f"{self.name}/{run}", (*model, "--methods", methods, *words))

    def clean(self) -> Step:
        return self.evaluate("cifar10", "source,tta,memo")

    def corrupted(self) -> Step:
        return self.evaluate("cifar10-c", "source,tta,memo", "--severities", "1,3,5", "--limit", "500")

    def ablations(self) -> Iterator[Step]:
        yield self.evaluate("objectives", "source,memo-pce,memo-ce")
        yield self.evaluate("standard", "source,memo", "--option", "augment=standard")

    def views(self) -> Iterator[Step]:
        for batch in BATCHES:
            words = ("--option", f"n_views={batch}", "--limit", "500")
            yield self.evaluate(f"b{batch}", "source,tta,memo", *words)


def on_pictures(network: str, pictures: Path, out: Path) -> Iterator[Step]:
    """Options from the validation corruptions, then clean and corrupted pictures."""
    tuned = Step(
        f"{network}/memo.toml",
        ("tune", str(pictures), "--model", network, *TUNING),
    )
    yield tuned
    words = ("evaluate", str(pictures), "--model", network, "--methods", PICTURE_METHODS)
    words += ("--config", str(out / tuned.name), "--option", f"n_views={PICTURE_VIEWS}", "--limit", "100")
    yield Step(f"{network}/clean", words)
    corruptions, levels = PICTURE_SHIFTS
    yield Step(f"{network}/corrupted", (*words, "--corruptions", corruptions, "--severities", levels))


def steps(out: Path, authors: Path | None, pictures: Path | None) -> Iterator[Step]:
    """What decides most comes first: all of it takes hours."""
    shipped = Cifar("shipped", None)
    published = [] if authors is None else [Cifar("authors", authors)]
    for cifar in published:
        yield cifar.clean()
        yield cifar.corrupted()
        yield from cifar.views()
    yield shipped.clean()
    if pictures is not None:
        for network in NETWORKS:
            yield from on_pictures(network, pictures, out)
    for cifar in published:
        yield from cifar.ablations()
    joint = ("evaluate", "cifar10", "--model", "resnet26-joint", "--methods", "source,ttt")
    yield Step("shipped/ttt", joint)
    yield shipped.corrupted()
    yield from shipped.ablations()
    yield from shipped.views()


def resuming(steps: Steps, about: str | None) -> click.Command:
    """A command that runs the steps one after the other; what is done already is soon done again."""

    @click.command(help=about)
    @click.argument("out", type=click.Path(path_type=Path))
    @click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
    @click.option(
        "--pictures", type=click.Path(exists=True, path_type=Path), help="Folder per ImageNet class."
    )
    def command(out: Path, authors: Path | None, pictures: Path | None) -> None:
        for step in steps(out, authors, pictures):
            words = step.command(out)
            click.echo(" ".join(words))
            if code := subprocess.run([sys.executable, "-m", "memo_tta", *words[1:]]).returncode:
                raise click.exceptions.Exit(code)

    return command


if __name__ == "__main__":
    resuming(steps, __doc__)()
