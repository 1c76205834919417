"""Run the paper's experiments; a second start resumes: python -m studies.reproduction_runs --help."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)  # numbers of views, the paper's B
NORMS = ("resnet20-bn", "cct2")  # batch norm and layer norm, beside the group norm of resnet26
NORM_METHODS = "source,tta,bn1,bn,tent,tent-episodic,tent-bs1,memo,restore"
TENT_METHODS = "source,tent,tent-episodic,tent-bs1"  # resnet26 has no batch norm to mix
IN_ORDER = ("--order", "data")  # for methods that take batches; CIFAR-10 has its images in random order
NORM_CORRUPTED = ("--severities", "1,3,5", "--limit", "200", *IN_ORDER)


@dataclass(frozen=True)
class Step:
    """A `memo` command and the name of what it writes: a folder of records, or a file."""

    name: str
    words: tuple[str, ...]

    def command(self, out: Path) -> list[str]:
        """Return the command line that writes into a folder."""
        return ["memo", *self.words, "--out", str(out / self.name)]


Steps = Callable[[Path | None], Iterator[Step]]  # from the path that an option gives


@dataclass(frozen=True)
class Cifar:
    """The experiments with one network on CIFAR-10."""

    name: str
    weights: Path | None  # None: the bundled ones
    model: str = "resnet26"

    def evaluate(self, run: str, methods: str, *words: str) -> Step:
        """Return an evaluation with further words of the command line."""
        given = () if self.weights is None else ("--weights", str(self.weights))
        model = ("evaluate", "cifar10", "--model", self.model, *given)
        return Step(f"{self.name}/{run}", (*model, "--methods", methods, *words))

    def clean(self) -> Step:
        """Return the evaluation on clean images."""
        return self.evaluate("cifar10", "source,tta,memo")

    def corrupted(self) -> Step:
        """Return the evaluation on corrupted images."""
        return self.evaluate("cifar10-c", "source,tta,memo", "--severities", "1,3,5", "--limit", "500")

    def ablations(self) -> Iterator[Step]:
        """Yield the evaluations with other objectives and with standard augmentation."""
        yield self.evaluate("objectives", "source,memo-pce,memo-ce")
        yield self.evaluate("standard", "source,memo", "--option", "augment=standard")

    def views(self) -> Iterator[Step]:
        """Yield an evaluation for each number of views."""
        for batch in BATCHES:
            words = ("--option", f"n_views={batch}", "--limit", "500")
            yield self.evaluate(f"b{batch}", "source,tta,memo", *words)


def other_norms(network: str) -> Iterator[Step]:
    """Yield tuning, whose result the zoo has as settings, then all methods on clean and corrupted images."""
    tuning = ("tune", "cifar10", "--model", network, "--limit", "200", "--severities", "3,5")
    yield Step(f"{network}/memo.toml", tuning)
    cifar = Cifar(network, None, network)
    yield cifar.evaluate("cifar10", NORM_METHODS, *IN_ORDER)
    yield cifar.evaluate("cifar10-c", NORM_METHODS, *NORM_CORRUPTED)


def steps(authors: Path | None) -> Iterator[Step]:
    """Yield all experiments, the most important first: together they take hours."""
    shipped = Cifar("shipped", None)
    published = [] if authors is None else [Cifar("authors", authors)]
    for cifar in published:
        yield cifar.clean()
        yield cifar.corrupted()
        yield from cifar.views()
    yield shipped.clean()
    for network in NORMS:
        yield from other_norms(network)
    yield shipped.evaluate("tent", TENT_METHODS, *IN_ORDER)
    yield shipped.evaluate("tent-c", TENT_METHODS, *NORM_CORRUPTED)
    for cifar in published:
        yield from cifar.ablations()
    joint = ("evaluate", "cifar10", "--model", "resnet26-joint", "--methods", "source,ttt")
    yield Step("shipped/ttt", joint)
    yield shipped.corrupted()
    yield from shipped.ablations()
    yield from shipped.views()


def steps_command(steps: Steps, help_text: str | None, option: str, option_help: str) -> click.Command:
    """Return a command that runs the steps one after the other; completed steps finish at once."""

    @click.command(help=help_text)
    @click.argument("out", type=click.Path(path_type=Path))
    @click.option(option, "given", type=click.Path(exists=True, path_type=Path), help=option_help)
    def command(out: Path, given: Path | None) -> None:
        for step in steps(given):
            words = step.command(out)
            click.echo(" ".join(words))
            if code := subprocess.run([sys.executable, "-m", "memo_tta", *words[1:]]).returncode:
                raise click.exceptions.Exit(code)

    return command


def authors_command(steps: Steps, help_text: str | None) -> click.Command:
    """Return a command for experiments of which some need the authors' weights."""
    return steps_command(steps, help_text, "--authors", "The authors' ResNet-26.")


main = authors_command(steps, __doc__)

if __name__ == "__main__":
    main()
