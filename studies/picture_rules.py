"""Try rules of `restore` on logits that studies.picture_passes kept: python -m studies.picture_rules --help.

A rule averages some passes, unless entropy (as a share of log K) and shift, each divided by its limit, add up
to at most 1: then the source answers. Errors are those on clean pictures and the mean over the corruptions at
levels 3 and 5, as changes to the source; the cost is the mean number of passes, on clean and on shifted ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click
import numpy as np
from scipy.special import entr, softmax

from memo_tta.report.markdown import table_row

Pass = tuple[str, int]  # the name of a file, and 0 for the version itself or 1 for its mirror image
SOURCE: Pass = ("plain-off", 0)
# Passes beside the source's. An m marks a mirror image, a number N.
PASSES: Mapping[str, Sequence[Pass]] = {
    "mirror": [("plain-off", 1)],
    "restored m": [("restored-off", 1)],
    "16 m": [("plain-16", 1)],
    "restored 16 m": [("restored-16", 1)],
    "restored m, 16, restored 16 m": [("restored-off", 1), ("plain-16", 0), ("restored-16", 1)],
    "restored m, 16 m, restored 16": [("restored-off", 1), ("plain-16", 1), ("restored-16", 0)],
    "restored m, 16 m, restored 64": [("restored-off", 1), ("plain-16", 1), ("restored-64", 0)],
    "restored m, 64 m, restored 64": [("restored-off", 1), ("plain-64", 1), ("restored-64", 0)],
    "all at off and 16": [
        *(("plain-off", 1), ("restored-off", 0), ("restored-off", 1), ("plain-16", 0)),
        *(("plain-16", 1), ("restored-16", 0), ("restored-16", 1)),
    ],
}
LIMITS = ((0.0, 0.0), (0.5, 0.2), (1.0, 0.12), (1.0, 0.15), (1.0, 0.2), (1.0, 0.25))  # of entropy and shift


@dataclass(frozen=True)
class Part:
    """Probabilities (pictures, 2, classes) of each pass, and shift and class of each picture."""

    probabilities: Mapping[str, np.ndarray]
    shift: np.ndarray
    targets: np.ndarray

    def error(self, passes: Sequence[Pass], limits: tuple[float, float]) -> tuple[float, float]:
        """Return error and cost of a rule."""
        source = self._pass(SOURCE)
        average = np.mean([source, *map(self._pass, passes)], axis=0)
        stops = np.zeros(len(source), bool)
        if limits[0]:
            share = entr(source).sum(axis=1) / np.log(source.shape[1])
            stops = share / limits[0] + self.shift / limits[1] <= 1
        answers = np.where(stops[:, None], source, average).argmax(axis=1)
        return float(np.mean(answers != self.targets)), 1 + len(passes) * float(np.mean(~stops))

    def _pass(self, name: Pass) -> np.ndarray:
        return self.probabilities[name[0]][:, name[1]]


def read_parts(folder: Path) -> dict[str, Part]:
    """Read the parts of one network that are complete."""
    needed = {SOURCE[0], *(name for passes in PASSES.values() for name, _ in passes)}
    found: dict[str, Part] = {}
    for part in sorted(folder.iterdir()):
        if all((part / f"{name}.npy").exists() for name in needed):
            probabilities = {
                name: softmax(np.load(part / f"{name}.npy").astype(np.float32), axis=-1) for name in needed
            }
            found[part.name] = Part(probabilities, np.load(part / "shift.npy"), np.load(part / "targets.npy"))
    return found


def figures(
    parts: Mapping[str, Part], passes: Sequence[Pass], limits: tuple[float, float]
) -> tuple[float, float, float, float]:
    """Return the error and the cost on clean pictures, then those on shifted ones."""
    clean = parts["clean"].error(passes, limits)
    shifted = [part.error(passes, limits) for name, part in parts.items() if name[-1] in "35"]
    error, cost = np.mean(shifted, axis=0)
    return *clean, float(error), float(cost)


@click.command(help=__doc__)
@click.argument("passes", type=click.Path(exists=True, path_type=Path))
def main(passes: Path) -> None:
    networks = {folder.name: read_parts(folder) for folder in sorted(passes.iterdir())}
    heads = [f"{name}: {what}" for name in networks for what in ("clean", "shifted", "passes")]
    click.echo(table_row(["passes beside the source", "limits", *heads]))
    click.echo("|---" * (2 + len(heads)) + "|")
    for name, limits in product(PASSES, LIMITS):
        cells: list[str] = []
        for parts in networks.values():
            clean, clean_cost, shifted, shifted_cost = figures(parts, PASSES[name], limits)
            source_clean, _, source_shifted, _ = figures(parts, [], (0.0, 0.0))
            cells += [f"{100 * (clean - source_clean):+.1f}", f"{100 * (shifted - source_shifted):+.1f}"]
            cells.append(f"{clean_cost:.1f} / {shifted_cost:.1f}")
        click.echo(table_row([name, "none" if not limits[0] else f"{limits[0]}, {limits[1]}", *cells]))


if __name__ == "__main__":
    main()
