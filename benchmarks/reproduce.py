"""The paper's experiments, as runs that resume: python -m benchmarks.reproduce --help."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

CORRUPTED = ("--severities", "1,3,5", "--limit", "500")  # of the 15 test corruptions
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
PICTURES = ("gaussian_noise,motion_blur,contrast,jpeg_compression", "3,5")


@dataclass(frozen=True)
class Run:
    """A folder under the one of all runs, and the words of `memo evaluate` that fill it."""

    name: str
    words: tuple[str, ...]

    def command(self, out: Path) -> list[str]:
        return ["memo", "evaluate", *self.words, "--out", str(out / self.name)]


def on_cifar(name: str, weights: Path | None) -> Iterator[Run]:
    """CIFAR-10 and -C, the ablations, and error over B."""
    model = ("cifar10", "--model", "resnet26", *(("--weights", str(weights)) if weights else ()))
    yield Run(f"{name}/cifar10", (*model, "--methods", "source,tta,memo"))
    yield Run(f"{name}/cifar10-c", (*model, *CORRUPTED, "--methods", "source,tta,memo"))
    yield Run(f"{name}/standard", (*model, "--methods", "source,memo", "--option", "augment=standard"))
    for batch in BATCHES:
        words = ("--methods", "source,tta,memo", "--option", f"n_views={batch}", "--limit", "500")
        yield Run(f"{name}/b{batch}", (*model, *words))
    yield Run(f"{name}/objectives", (*model, "--methods", "memo-pce,memo-ce"))


def on_pictures(pictures: Path) -> Iterator[Run]:
    """Models with real ImageNet weights, on clean and corrupted pictures."""
    corruptions, severities = PICTURES
    for model in ("efficientnet_lite0", "mobilenet_v2"):
        words = (
            str(pictures),
            "--model",
            model,
            "--methods",
            "source,tta,bn1,memo,tent-bs1",
            "--limit",
            "100",
        )
        options = ("--option", "n_views=16")
        yield Run(f"{model}/clean", (*words, *options))
        made = ("--corruptions", corruptions, "--severities", severities)
        yield Run(f"{model}/corrupted", (*words, *options, *made))


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--pictures", type=click.Path(exists=True, path_type=Path), help="Folder per ImageNet class.")
def main(out: Path, authors: Path | None, pictures: Path | None) -> None:
    runs = [
        *(on_cifar("authors", authors) if authors else ()),
        *on_cifar("shipped", None),
        Run("shipped/ttt", ("cifar10", "--model", "resnet26-joint", "--methods", "source,ttt")),
        *(on_pictures(pictures) if pictures else ()),
    ]
    for run in runs:
        command = run.command(out)
        click.echo(" ".join(command))
        if code := subprocess.run([sys.executable, "-m", "memo_tta", *command[1:]]).returncode:
            raise click.exceptions.Exit(code)


if __name__ == "__main__":
    main()
