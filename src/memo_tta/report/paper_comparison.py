"""A run beside the paper, where the setting is the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass

from memo_tta.evaluation.analysis import MethodResult, ResultBlock
from memo_tta.report.paper_results import published
from memo_tta.report.run import Run

ROUNDING = 0.05  # of the paper's figures, in percent
OTHER_IMAGES = {"cifar10-train", "cifar10.1-v4"}  # data that shares a name with the paper's


@dataclass(frozen=True)
class PaperComparison:
    """A method's figure and the paper's: error %, or mCE; and what each says of its change to source."""

    row: MethodResult
    ours: float
    theirs: float
    change: float | None  # ours, in points
    their_change: float | None

    @property
    def agrees(self) -> bool | None:
        """Whether the paper's error is within the interval of ours; mCE has none."""
        if self.row.mce is not None:
            return None
        return 100 * self.row.low - ROUNDING <= self.theirs <= 100 * self.row.high + ROUNDING

    @property
    def change_agrees(self) -> bool | None:
        paired = self.row.to_source
        if self.row.mce is not None or paired is None or self.their_change is None:
            return None
        return 100 * paired.low - 2 * ROUNDING <= self.their_change <= 100 * paired.high + 2 * ROUNDING


def compare_with_paper(run: Run, block: ResultBlock, rows: Sequence[MethodResult]) -> list[PaperComparison]:
    """The methods whose figures the paper has, averaged over the same parts."""
    found: list[tuple[MethodResult, float, float]] = []
    for row in rows:
        theirs = paper_figure(run, block, set(block.parts), row.method)
        if theirs is not None:
            found.append((row, 100 * row.error if row.mce is None else row.mce, theirs))
    base = next(((ours, theirs) for row, ours, theirs in found if row.method == "source"), None)
    return [
        PaperComparison(row, ours, theirs, None, None)
        if base is None or row.method == "source"
        else PaperComparison(row, ours, theirs, ours - base[0], theirs - base[1])
        for row, ours, theirs in found
    ]


def paper_figure(run: Run, block: ResultBlock, parts: set, method: str) -> float | None:
    """The paper's figure for a method on some parts."""
    if run.job is None or OTHER_IMAGES & set(run.job.data):
        return None
    return published(run.job.model, block.dataset, parts, method, run.unusual_options(method))
