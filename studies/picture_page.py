"""Fill docs/pictures.md, its CSV and its plot from runs: python -m studies.picture_page --help.

Runs are those of studies.picture_runs and, in OUT/passes, the logits that studies.picture_passes kept.
Sections whose results are neither there nor in the CSV stay as they are.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import click
import numpy as np
from scipy.special import softmax

from memo_tta.evaluation.comparison import compare, differences, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.files import atomic_file
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from memo_tta.report.plots import GREY, LINES, drawing
from studies.page_markers import fill_page
from studies.picture_runs import NETWORKS, TRIALS, TRIED, steps
from studies.reproduction_page import OUT, open_started
from studies.result_files import COLUMNS, blocks, read_csv, update_csv, write_csv

FORWARD = ("tta", "bn1", "restore")
SOURCE = "plain-off"
PICTURES = Path("pictures")  # shown in commands instead of this machine's path
# By the names of the files that studies.picture_passes wrote.
PRIORS = ("4", "8", "16", "32", "64", "256", "1024")
PASSES = {
    "image and mirror image": "mirror-off",
    **{f"N = {n}": f"plain-{n}" for n in PRIORS},
    "restored": "restored-off",
    "half-restored": "half-off",
    "half-restored, N = 16": "half-16",
}
KINDS = {
    "image and mirror image": "mirror-off",
    "small translations": "translated-off",
    "crops of 80 to 100 %": "zoomed-off",
    "AugMix on the whole picture": "augmix_whole-off",
    "AugMix on crops of 80 to 100 %": "augmix_mild-off",
    "AugMix on the paper's crops, of 8 to 100 %": "augmix_paper-off",
}
# Folders of kept logits: what the page shows of each, and of which networks.
KEPT = {"passes": (PASSES, NETWORKS), "kinds": (KINDS, TRIED)}


class Page:
    """The sections of the page."""

    def __init__(self, found: Mapping[str, ResultBlock], commands: Mapping[str, str], out: Path):
        self._found, self._commands, self._out = found, commands, out

    def output(self, name: str) -> str | None:
        """Return what another study printed."""
        path = self._out / name
        return path.read_text("utf-8") if path.exists() else None

    def forward(self, run: str) -> str | None:
        """Return what the methods without a gradient change, by network."""
        return self._by_network([(method, run, method) for method in FORWARD])

    def memo(self, images: str) -> str | None:
        """Return what MEMO changes with its defaults and with the paper's settings, by network."""
        return self._by_network(
            [
                ("restore", f"memo-{images}", "restore"),
                ("memo", f"memo-{images}", "memo"),
                ("memo, the paper's settings", f"paper-{images}", "memo"),
            ]
        )

    def trials(self, images: str) -> str | None:
        """Return what MEMO changes without gates, by kind of views."""
        return self._by_network([(name, f"{name}-{images}", "memo") for name in TRIALS], TRIED)

    def kept(self, folder: str) -> str | None:
        """Return what single passes, or kinds of views, change on clean and on shifted pictures."""
        shown, networks = KEPT[folder]
        found = [self._found.get(f"{folder}/{network}") for network in networks]
        known = [block for block in found if block is not None and set(shown.values()) <= set(block.methods)]
        if len(known) < len(networks):
            return None
        halves = [half for block in known for half in _split(block)]
        heads = [f"{network}: {what}" for network in networks for what in ("clean", "shifted")]
        lines = [table_row(["", *heads]), "|---" * (1 + len(heads)) + "|"]
        errors = [formatting.percent(mean_error(block, SOURCE)[0]) for block in halves]
        lines.append(table_row(["source, error %", *errors]))
        for title, method in shown.items():
            lines.append(table_row([title, *(_change(compare(block, method, SOURCE)) for block in halves)]))
        return "\n".join(lines)

    def corruptions(self, run: str) -> str | None:
        """Return errors of the source and what `restore` changes, by corruption, over both levels."""
        found = [self._found.get(f"224/{network}/{run}") for network in NETWORKS]
        if None in found:
            return None
        known = [block for block in found if block is not None]
        lines = [table_row(["", *NETWORKS, "mean"]), "|---" * (2 + len(NETWORKS)) + "|"]
        for corruption in dict.fromkeys(shift.corruption for shift in known[0].parts):
            parts = [_of_corruption(block, corruption) for block in known]
            changes = [fmean(differences(part, "restore", "source").values()) for part in parts]
            cells = [
                f"{formatting.percent(mean_error(part, 'source')[0])} {formatting.percentage_points(change)}"
                for part, change in zip(parts, changes, strict=True)
            ]
            name = corruption.replace("_", " ")
            lines.append(table_row([name, *cells, formatting.percentage_points(fmean(changes))]))
        return "\n".join(lines)

    def _by_network(
        self, rows: Sequence[tuple[str, str, str]], networks: Sequence[str] = NETWORKS
    ) -> str | None:
        """Return a table of (title, run, method): the source's error, and changes to it with intervals."""
        runs = list(dict.fromkeys(run for _, run, _ in rows))
        names = [f"224/{network}/{run}" for network in networks for run in runs]
        if any(name not in self._found for name in names):
            return None
        lines = ["```sh", *(self._commands[name] for name in names), "```", ""]
        lines += [table_row(["", *networks, "mean"]), "|---" * (2 + len(networks)) + "|"]
        of_run = {run: [self._found[f"224/{network}/{run}"] for network in networks] for run in runs}
        errors = [mean_error(block, "source")[0] for block in of_run[runs[0]]]
        cells = map(formatting.percent, [*errors, fmean(errors)])
        lines.append(table_row(["source, error %", *cells]))
        for title, run, method in rows:
            changes = [compare(block, method, "source") for block in of_run[run]]
            mean = fmean(change.difference for change in changes if change is not None)
            lines.append(table_row([title, *map(_change, changes), formatting.percentage_points(mean)]))
        return "\n".join(lines)


def _change(change: PairedComparison | None) -> str:
    """Format a change of the error with its interval."""
    assert change is not None
    return f"{formatting.percentage_points(change.difference)} ({formatting.change_interval(change)})"


def _split(block: ResultBlock) -> tuple[ResultBlock, ResultBlock]:
    """Return the clean part, and the parts at levels 3 and 5."""
    clean = {shift: part for shift, part in block.parts.items() if not shift.corruption}
    shifted = {shift: part for shift, part in block.parts.items() if shift.severity in (3, 5)}
    return ResultBlock(block.dataset, clean), ResultBlock(block.dataset, shifted)


def kept_rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield CSV rows of the kept logits of one network: the first view of a version, or the mean of views."""
    for part in sorted(path for path in folder.iterdir() if (path / f"{SOURCE}.npy").exists()):
        corruption, _, level = part.name.partition("-")
        shift = ("", 0) if part.name == "clean" else (corruption, int(level))
        targets = np.load(part / "targets.npy")
        for file in sorted(part.glob("*-*.npy")):
            if file.name.startswith("shift-"):
                continue
            p = softmax(np.load(file).astype(np.float32), axis=-1)
            is_version = file.stem.partition("-")[0] in ("plain", "restored", "half")
            answers = {file.stem: p[:, 0] if is_version else p.mean(axis=1)}
            if file.stem == SOURCE:
                answers["mirror-off"] = p.mean(axis=1)
            for method, probabilities in answers.items():
                wrong = probabilities.argmax(axis=1) != targets
                fields = (
                    f"{folder.parent.name}/{folder.name}",
                    "pictures",
                    *shift,
                    method,
                    len(wrong),
                    int(wrong.sum()),
                )
                bits = np.packbits(wrong).tobytes().hex()
                yield dict(zip(COLUMNS, (*fields, None, bits), strict=True))


def update_kept(path: Path, out: Path) -> None:
    """Rewrite the rows of the networks whose logits are in the folder, and keep those of others."""
    rows: list[Mapping[str, object]] = []
    for name in (f"{folder}/{network}" for folder, (_, networks) in KEPT.items() for network in networks):
        kept = [row for row in read_csv(path) if row["run"] == name]
        rows += kept_rows(out / name) if (out / name).exists() else kept
    write_csv(path, rows)


def prior_strength_plot(networks: Mapping[str, ResultBlock]) -> bytes:
    """Draw the change of the error over N, on clean and on shifted pictures, one line per network."""
    with drawing(6.4, 2.6) as result:
        panels = result.figure.subplots(1, 2)
        for axes, part, title in zip(panels, (0, 1), ("clean pictures", "levels 3 and 5"), strict=True):
            for (name, block), colour in zip(networks.items(), LINES, strict=False):
                changes = [compare(_split(block)[part], f"plain-{n}", SOURCE) for n in PRIORS]
                points = [100 * change.difference for change in changes if change is not None]
                axes.plot(range(len(points)), points, marker="o", markersize=3, color=colour, label=name)
            axes.axhline(0, color=GREY, linewidth=0.8)
            axes.set(title=title, xlabel="prior strength N", xticks=range(len(PRIORS)), xticklabels=PRIORS)
        panels[0].set_ylabel("change of the error, points")
        panels[0].legend()
    return result.svg


def _of_corruption(block: ResultBlock, corruption: str) -> ResultBlock:
    parts = {shift: part for shift, part in block.parts.items() if shift.corruption == corruption}
    return ResultBlock(block.dataset, parts)


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown = list(steps(PICTURES))
    commands = {step.name: shlex.join(step.command(OUT)) for step in shown}
    runs = {name: run for name, run in open_started(out, shown) if not run.missing}
    update_csv(docs / "pictures.csv", list(commands), runs)
    update_kept(docs / "picture_passes.csv", out)
    found = blocks([row for name in ("pictures", "picture_passes") for row in read_csv(docs / f"{name}.csv")])
    page = Page(found, commands, out)
    names = ("output", "forward", "memo", "trials", "kept", "corruptions")
    fill_page(docs / "pictures.md", {name: getattr(page, name) for name in names})
    if all(f"passes/{network}" in found for network in NETWORKS):
        with atomic_file(docs / "pictures.svg") as part:
            part.write_bytes(prior_strength_plot({name: found[f"passes/{name}"] for name in NETWORKS}))


if __name__ == "__main__":
    main()
