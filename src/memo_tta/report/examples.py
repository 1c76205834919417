"""Pictures of the points that memo helped and hurt most."""

from collections.abc import Sequence
from dataclasses import dataclass

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.changed_points import ChangedPoint, most_changed_points
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.report.run import Run
from memo_tta.report.view_panel import Figure, point_panel

SHOWN_POINTS = 3  # helped, and as many hurt


@dataclass(frozen=True)
class Examples:
    """The pictures of each block of a run, or the reason why there are none."""

    figures: Sequence[Sequence[Figure]]
    problem: str = ""


def examples(run: Run) -> Examples:
    """Draw the points that memo helped and hurt most against source; needs the run's model and data."""
    chosen = [_choose_points(block) for block in run.blocks]
    no_figures: list[list[Figure]] = [[] for _ in run.blocks]
    if run.job is None or not any(chosen):
        return Examples(no_figures)
    try:
        context = _load_context(run.job, run.metadata.get("fingerprint"))
        figures = [
            [_figure(context, block.dataset, verdict, point) for verdict, point in points]
            for block, points in zip(run.blocks, chosen, strict=True)
        ]
    except (MemoError, OSError, ImportError) as error:
        problem = f"Pictures need the run's model and data, which could not be loaded here ({error})."
        return Examples(no_figures, problem)
    return Examples(figures)


def _choose_points(block: ResultBlock) -> list[tuple[str, ChangedPoint]]:
    helped, hurt = most_changed_points(block, "memo", "source", SHOWN_POINTS)
    return [("corrected", point) for point in helped] + [("made wrong", point) for point in hurt]


def _load_context(job: EvaluationJob, fingerprint: str | None) -> WorkerContext:
    context = WorkerContext(job)
    if fingerprint not in (None, context.fingerprint()):
        raise ConfigError(f"{job.model}: the weights are no longer those of the run")
    return context


def _figure(context: WorkerContext, dataset: str, verdict: str, point: ChangedPoint) -> Figure:
    classifier, data = _find_part(context, dataset, point)
    options = {"seed": context.job.seed, **context.job.options.get("memo", {})}
    robust = METHODS["memo"](classifier, **options)
    target = classifier.labels[point.target] if classifier.labels else str(point.target)
    shift = f"{point.shift.corruption} at level {point.shift.severity}, " if point.shift.corruption else ""
    caption = (
        f"{shift}image {data.id(point.position)}, {verdict} by memo (true class: {target}, whose probability "
        f"{'rose' if point.gain > 0 else 'fell'} by at least {abs(100 * point.gain):.0f} percentage points)"
    )
    return Figure(point_panel(robust, data, point.position, target), caption)


def _find_part(context: WorkerContext, dataset: str, point: ChangedPoint) -> tuple[Classifier, Dataset]:
    for classifier, data in context.parts:
        is_part = (data.name, data.corruption, data.severity) == (dataset, *point.shift)
        if is_part and point.position < len(data):
            return classifier, data
    raise ConfigError(f"{dataset}: the data is no longer that of the run")
