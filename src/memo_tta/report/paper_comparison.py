"""A run's figures next to the paper's, where model, data and options are the paper's."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.comparison import MethodResult
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report.paper_results import published
from memo_tta.report.run import Run

ROUNDING = 0.05  # of the paper's figures, in percent
OTHER_IMAGES = {"cifar10-train", "cifar10.1-v4"}  # data with the name of the paper's, but other images


@dataclass(frozen=True)
class PaperComparison:
    """A method's figure and the paper's, as error % or mCE, and the change to source of each."""

    row: MethodResult
    measured: float
    paper: float
    change: float | None  # measured - measured source, in percentage points
    paper_change: float | None

    @property
    def agrees(self) -> bool | None:
        """Whether the paper's error lies in the measured interval; None for mCE, which has no interval."""
        if self.row.mce is not None:
            return None
        return 100 * self.row.low - ROUNDING <= self.paper <= 100 * self.row.high + ROUNDING

    @property
    def change_agrees(self) -> bool | None:
        """Whether the paper's change to source lies in the measured interval; None without one."""
        paired = self.row.to_source
        if self.row.mce is not None or paired is None or self.paper_change is None:
            return None
        return 100 * paired.low - 2 * ROUNDING <= self.paper_change <= 100 * paired.high + 2 * ROUNDING


def compare_with_paper(run: Run, block: ResultBlock, rows: Sequence[MethodResult]) -> list[PaperComparison]:
    """Return a comparison for each method that the paper reports, averaged over the same parts."""
    found: list[tuple[MethodResult, float, float]] = []
    for row in rows:
        paper = paper_figure(run, block, set(block.parts), row.method)
        if paper is not None:
            found.append((row, 100 * row.error if row.mce is None else row.mce, paper))
    source = next(((measured, paper) for row, measured, paper in found if row.method == "source"), None)
    return [
        PaperComparison(row, measured, paper, None, None)
        if source is None or row.method == "source"
        else PaperComparison(row, measured, paper, measured - source[0], paper - source[1])
        for row, measured, paper in found
    ]


def paper_figure(
    run: Run, block: ResultBlock, parts: Collection[CorruptionLevel], method: str
) -> float | None:
    """Return the paper's figure for a method, averaged over some parts; None if the paper has none."""
    if run.job is None or OTHER_IMAGES & set(run.job.data):
        return None
    return published(run.job.model, block.dataset, parts, method, run.changed_options(method))
