"""Paired comparisons of two methods that print as sentences."""

from dataclasses import dataclass

from memo_tta.errors import DataError
from memo_tta.evaluation.comparison import compare
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.registry import unknown_name
from memo_tta.report import formatting
from memo_tta.report.run import Run


@dataclass(frozen=True, kw_only=True)
class MethodComparison(PairedComparison):
    """A method against a baseline on the same images of one block of a run."""

    data: str
    method: str
    baseline: str

    def __str__(self) -> str:
        difference = formatting.minus_sign(formatting.percentage_points(self.difference))
        interval = formatting.minus_sign(formatting.change_interval(self))
        return (
            f"{self.data}: {self.method} changes the error of {self.baseline} by {difference} points "
            f"(95 %: {interval}): of {self.points} predictions it corrects {self.helped} and makes "
            f"{self.hurt} wrong (p {_equals(formatting.p_value(self.p))})"
        )


class Comparisons(tuple[MethodComparison, ...]):
    """One comparison per block of the results; prints one line each."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def compare_methods(run: Run, method: str, baseline: str) -> Comparisons:
    """Compare two methods on each block where they share images; raise for a method that the run lacks."""
    known = list(dict.fromkeys(name for block in run.blocks for name in block.methods))
    for name in (method, baseline):
        if name not in known:
            raise unknown_name("method of these results", name, known)
    found = [
        MethodComparison(**vars(comparison), data=run.name(block), method=method, baseline=baseline)
        for block in run.blocks
        if (comparison := compare(block, method, baseline)) is not None
    ]
    if not found:
        raise DataError(f"{run.folder}: {method} and {baseline} have no images in common")
    return Comparisons(found)


def _equals(p_value: str) -> str:
    return p_value if p_value.startswith("<") else f"= {p_value}"
