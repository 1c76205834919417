"""Pictures of the points that a method helped and hurt most."""

from collections.abc import Sequence
from dataclasses import dataclass

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.changed_points import ChangedPoint, most_changed_points
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.recommendation import SOURCE
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS
from memo_tta.methods.tta import TTA
from memo_tta.methods.view_method import ViewMethod
from memo_tta.models.classifier import Classifier
from memo_tta.report.run import Run
from memo_tta.report.view_panel import Figure, point_panel

SHOWN_POINTS = 3  # helped, and as many hurt


@dataclass(frozen=True)
class Examples:
    """The pictures of each block of a run, or the reason why there are none."""

    figures: Sequence[Sequence[Figure]]
    problem: str = ""


def examples(run: Run, methods: Sequence[str | None]) -> Examples:
    """Draw the points that a method helped and hurt most against source, for each block the given one.

    Needs the run's model and data.
    """
    chosen = [
        [] if method is None else _choose_points(block, method)
        for block, method in zip(run.blocks, methods, strict=True)
    ]
    no_figures: list[list[Figure]] = [[] for _ in run.blocks]
    if run.job is None or not any(chosen):
        return Examples(no_figures)
    try:
        context = _load_context(run.job, run.metadata.get("fingerprint"))
        figures = [
            [_figure(context, block.dataset, method or "", verdict, point) for verdict, point in points]
            for block, method, points in zip(run.blocks, methods, chosen, strict=True)
        ]
    except (MemoError, OSError, ImportError) as error:
        problem = f"Pictures need the run's model and data, which could not be loaded here ({error})."
        return Examples(no_figures, problem)
    return Examples(figures)


def shown_method(block: ResultBlock, best: str) -> str | None:
    """Return the method to show: the best one, else memo, else any, if it uses views; None without any."""
    if SOURCE not in block.methods:
        return None
    wanted = (name for name in (best, "memo", *block.methods) if name in block.methods)
    return next((name for name in wanted if uses_views(name)), None)


def uses_views(method: str) -> bool:
    """Return whether a method predicts from several views of an image."""
    return method in METHODS and issubclass(METHODS[method].method, ViewMethod)


def only_averages(method: str) -> bool:
    """Return whether a method averages over views without adapting the model."""
    return method in METHODS and issubclass(METHODS[method].method, TTA)


def _choose_points(block: ResultBlock, method: str) -> list[tuple[str, ChangedPoint]]:
    helped, hurt = most_changed_points(block, method, SOURCE, SHOWN_POINTS)
    return [("corrected", point) for point in helped] + [("made wrong", point) for point in hurt]


def _load_context(job: EvaluationJob, fingerprint: str | None) -> WorkerContext:
    context = WorkerContext(job)
    if fingerprint not in (None, context.fingerprint()):
        raise ConfigError(f"{job.model}: the weights are no longer those of the run")
    return context


def _figure(context: WorkerContext, dataset: str, method: str, verdict: str, point: ChangedPoint) -> Figure:
    classifier, data = _find_part(context, dataset, point)
    options = {"seed": context.job.seed, **context.job.options.get(method, {})}
    robust = METHODS[method](classifier, **options)
    target = classifier.labels[point.target] if classifier.labels else str(point.target)
    shift = f"{point.shift.corruption} at level {point.shift.severity}, " if point.shift.corruption else ""
    caption = (
        f"{shift}image {data.id(point.position)}, {verdict} by {method} (true class: {target}, whose "
        f"probability {'rose' if point.gain > 0 else 'fell'} by at least {abs(100 * point.gain):.0f} "
        "percentage points)"
    )
    return Figure(point_panel(robust, data, point.position, target), caption)


def _find_part(context: WorkerContext, dataset: str, point: ChangedPoint) -> tuple[Classifier, Dataset]:
    for classifier, data in context.parts:
        is_part = (data.name, data.corruption, data.severity) == (dataset, *point.shift)
        if is_part and point.position < len(data):
            return classifier, data
    raise ConfigError(f"{dataset}: the data is no longer that of the run")
