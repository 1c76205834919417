"""Try rules of `restore` on logits that studies.picture_passes kept: python -m studies.picture_rules --help.

The source answers if its margin (the difference of its two largest probabilities) is at least `margin` times
min(1, d / 0.2), with d the shift of the picture. Else some passes are averaged, each with the weight
1 / d^power of its own shift, and the source's weight is multiplied by 1 + `source` max(0, 1 - d / 0.2).
Errors are those on clean pictures and the mean over the corruptions at some levels, as changes to the source;
the cost is the mean number of passes, on clean and on shifted pictures. Pictures with d >= 0.2 count as
clearly shifted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from scipy.special import softmax

from memo_tta.models.shift import SHIFTED
from memo_tta.report.markdown import table_row

Pass = tuple[str, int]  # the name of a file, and 0 for the version itself or 1 for its mirror image
SOURCE: Pass = ("plain-off", 0)


@dataclass(frozen=True)
class Rule:
    """The passes beside the source's, those of clearly shifted pictures, and when and how they count."""

    passes: Sequence[Pass]
    if_shifted: Sequence[Pass] = ()
    margin: float = 0.8
    power: float = 1.0
    source: float = 3.0


CHOSEN = Rule([("restored-off", 1), ("half-16", 0)], [("half-16", 1)])
# An m marks a mirror image, a number N; what follows "if shifted" is for pictures with d >= 0.2.
RULES: Mapping[str, Rule] = {
    "chosen: restored m, half-restored 16, if shifted half-restored 16 m": CHOSEN,
    "margin 0.6": replace(CHOSEN, margin=0.6),
    "margin 1": replace(CHOSEN, margin=1.0),
    "no gate": replace(CHOSEN, margin=np.inf),
    "equal weights": replace(CHOSEN, power=0.0),
    "weights 1 / sqrt(d)": replace(CHOSEN, power=0.5),
    "weights 1 / d^2": replace(CHOSEN, power=2.0),
    "source 0": replace(CHOSEN, source=0.0),
    "source 1": replace(CHOSEN, source=1.0),
    "source 6": replace(CHOSEN, source=6.0),
    "mirror": Rule([("plain-off", 1)]),
    "restored m": Rule([("restored-off", 1)]),
    "16": Rule([("plain-16", 0)]),
    "restored m, 16": Rule([("restored-off", 1), ("plain-16", 0)]),
    "restored m, half-restored 16": Rule(CHOSEN.passes),
    "restored m, half-restored 16, half-restored 16 m": Rule([*CHOSEN.passes, *CHOSEN.if_shifted]),
    "restored m, 16, restored 16 m": Rule([("restored-off", 1), ("plain-16", 0), ("restored-16", 1)]),
    "restored m, 32, restored 32 m": Rule([("restored-off", 1), ("plain-32", 0), ("restored-32", 1)]),
    "restored m, half-restored 16, if shifted 16 m": replace(CHOSEN, if_shifted=[("plain-16", 1)]),
    "restored m, half-restored 16, if shifted 16 m at 192 pixels": replace(
        CHOSEN, if_shifted=[("plain-16-192", 1)]
    ),
    "restored m, half-restored 16, if shifted half-restored 16 m at 160 pixels": replace(
        CHOSEN, if_shifted=[("half-16-160", 1)]
    ),
    "chosen, if shifted restored, restored 16": replace(
        CHOSEN, if_shifted=[*CHOSEN.if_shifted, ("restored-off", 0), ("restored-16", 0)]
    ),
}


@dataclass(frozen=True)
class Part:
    """Probabilities (pictures, views, classes) and shifts (pictures, views) by pass, and the classes."""

    probabilities: Mapping[str, np.ndarray]
    shifts: Mapping[str, np.ndarray]
    targets: np.ndarray

    def answers(self, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities (pictures, classes) that the rule gives, and the number of passes."""
        source, shift = self._pass(SOURCE)
        scale = np.minimum(1, shift / SHIFTED)
        first, second = np.sort(source, axis=1)[:, :-3:-1].T
        stops = first - second >= rule.margin * scale
        columns = [self._pass(name) for name in (SOURCE, *rule.passes, *rule.if_shifted)]
        weights = np.stack([d**-rule.power for _, d in columns])
        weights[0] *= 1 + rule.source * (1 - scale)
        is_shifted = shift >= SHIFTED
        weights[1 + len(rule.passes) :] *= is_shifted
        rows = np.stack([probabilities for probabilities, _ in columns])
        average = (rows * (weights / weights.sum(axis=0))[:, :, None]).sum(axis=0)
        more = len(rule.passes) + is_shifted * len(rule.if_shifted)
        return np.where(stops[:, None], source, average), 1 + more * ~stops

    def error(self, rule: Rule) -> tuple[float, float]:
        """Return the error and the mean number of passes of a rule."""
        probabilities, passes = self.answers(rule)
        return float(np.mean(probabilities.argmax(axis=1) != self.targets)), float(passes.mean())

    @property
    def source_error(self) -> float:
        return float(np.mean(self._pass(SOURCE)[0].argmax(axis=1) != self.targets))

    def _pass(self, name: Pass) -> tuple[np.ndarray, np.ndarray]:
        return self.probabilities[name[0]][:, name[1]], self.shifts[name[0]][:, name[1]]


def read_parts(folder: Path) -> dict[str, Part]:
    """Read the parts of one network that are complete."""
    needed = {SOURCE[0], *(name for rule in RULES.values() for name, _ in (*rule.passes, *rule.if_shifted))}
    found: dict[str, Part] = {}
    for part in sorted(folder.iterdir()):
        if all((part / f"{name}.npy").exists() for name in needed):
            probabilities = {
                name: softmax(np.load(part / f"{name}.npy").astype(np.float32), axis=-1) for name in needed
            }
            shifts = {name: np.load(part / f"shift-{name}.npy").astype(np.float64) for name in needed}
            found[part.name] = Part(probabilities, shifts, np.load(part / "targets.npy"))
    return found


def figures(parts: Mapping[str, Part], rule: Rule, levels: str) -> tuple[float, float, float, float]:
    """Return the change of the error and the cost on clean pictures, then those on shifted ones."""
    changes = {
        name: (part.error(rule)[0] - part.source_error, part.error(rule)[1]) for name, part in parts.items()
    }
    shifted = np.mean([change for name, change in changes.items() if name[-1] in levels], axis=0)
    return *changes["clean"], float(shifted[0]), float(shifted[1])


@click.command(help=__doc__)
@click.argument("passes", type=click.Path(exists=True, path_type=Path))
@click.option("--levels", default="35", show_default=True, help="Levels of the corruptions.")
def main(passes: Path, levels: str) -> None:
    networks = {folder.name: read_parts(folder) for folder in sorted(passes.iterdir())}
    heads = [f"{name}: {what}" for name in networks for what in ("clean", "shifted", "passes")]
    click.echo(table_row(["rule", *heads]))
    click.echo("|---" * (1 + len(heads)) + "|")
    for name, rule in RULES.items():
        cells: list[str] = []
        for parts in networks.values():
            clean, clean_cost, shifted, shifted_cost = figures(parts, rule, levels)
            cells += [
                f"{100 * clean:+.1f}",
                f"{100 * shifted:+.1f}",
                f"{clean_cost:.1f} / {shifted_cost:.1f}",
            ]
        click.echo(table_row([name, *cells]))


if __name__ == "__main__":
    main()
