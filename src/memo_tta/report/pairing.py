"""The shifted and the clean results of one data set, which belong together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from memo_tta.data.formats.imagenet import IMAGENET_C
from memo_tta.evaluation.comparison import MethodResult, ResultTable
from memo_tta.evaluation.recommendation import (
    SOURCE,
    Assessment,
    MethodLimits,
    Recommendation,
    assess,
    recommend,
)
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report.run import Run

LIMITS = MethodLimits()


@dataclass(frozen=True)
class Setting:
    """A model on one data set: on its shifted images, its clean ones, or both."""

    run: Run
    shifted: ResultTable | None
    clean: ResultTable | None  # images without a corruption: whether they are clean, only the user knows

    @property
    def table(self) -> ResultTable:
        """The results to speak of first: those on shifted images, if there are any."""
        found = self.shifted or self.clean
        assert found is not None
        return found

    @property
    def data(self) -> str:
        """The name of the data set."""
        return self.table[0].dataset

    def heading(self, runs: int) -> str:
        """Return the model and the data, with the folder's name if the report shows several runs."""
        if self.shifted is None or self.clean is None:
            return self.run.heading(self.table[0], runs)
        name = f"{self.run.model} · {self.data}"
        return f"{name} ({self.run.folder.name})" if runs > 1 else name

    @property
    def methods(self) -> list[str]:
        return self.table[0].methods

    @property
    def is_compared(self) -> bool:
        """Whether there are results of the source and of another method."""
        return SOURCE in self.methods and len(self.methods) > 1

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """What to use; None without shifted images, without the source, or with nothing beside it."""
        if self.shifted is None or not self.is_compared:
            return None
        return recommend(self.shifted[0], self.clean and self.clean[0], LIMITS)

    @cached_property
    def assessments(self) -> list[Assessment]:
        """What each method changes; without shifted images, their gains are None."""
        block, clean = self.table[0], self.clean and self.clean[0]
        found = [assess(method, block, clean) for method in self.methods]
        return found if self.shifted else [replace(each, gain=None) for each in found]

    def row(self, method: str) -> MethodResult:
        """Return the method's results in the table to speak of first."""
        return next(row for row in self.table[1] if row.method == method)


def settings(runs: Sequence[Run]) -> list[Setting]:
    """Return every data set of the runs; clean results stand beside the shifted ones of their data set."""
    tables = [(run, table) for run in runs for table in run.tables]
    partners = {id(table): _clean_results(run, table[0], tables) for run, table in tables}
    taken = {id(partner) for partner in partners.values()}
    return [
        Setting(run, table, partners[id(table)]) if table[0].is_corrupted else Setting(run, None, table)
        for run, table in tables
        if id(table) not in taken
    ]


def _clean_results(
    run: Run, block: ResultBlock, tables: Sequence[tuple[Run, ResultTable]]
) -> ResultTable | None:
    """Return the clean results for a shifted block: of its own run, else the only ones of an equal model."""
    found = list(_clean_of(block, [(other, table) for other, table in tables if other is run]))
    if not found:
        equal = [(other, table) for other, table in tables if _has_equal_methods(run, other)]
        found = list(_clean_of(block, equal))
    return found[0] if len(found) == 1 and block.is_corrupted else None


def _clean_of(block: ResultBlock, tables: Sequence[tuple[Run, ResultTable]]) -> Iterator[ResultTable]:
    names = {block.dataset, block.dataset.removesuffix("-c")}
    for run, table in tables:
        clean, _ = table
        is_imagenet = block.dataset == IMAGENET_C and clean is run.clean_imagenet()
        if not clean.is_corrupted and (clean.dataset in names or is_imagenet):
            yield table


def _has_equal_methods(run: Run, other: Run) -> bool:
    """Return whether two runs have the same model and the same options of methods."""
    first, second = run.job, other.job
    return (
        first is not None
        and second is not None
        and run.metadata.get("fingerprint") is not None
        and run.metadata["fingerprint"] == other.metadata.get("fingerprint")
        and (first.model, first.model_arguments, first.options)
        == (second.model, second.model_arguments, second.options)
    )
