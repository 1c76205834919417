"""Points that memo helped or hurt most, shown as the paper's figure 2 shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.analysis import ChangedPoint, ResultBlock, most_changed_points
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS, Method
from memo_tta.models.classifier import Classifier
from memo_tta.report.html import Figure
from memo_tta.report.run import Run
from memo_tta.report.view_panel import view_panel

SHOWN_POINTS, SHOWN_VIEWS = 3, 7  # of each kind, and of each point


@dataclass(frozen=True)
class Examples:
    """Pictures for each of the run's blocks, or why there are none."""

    figures: Sequence[Sequence[Figure]]
    excuse: str = ""


def examples(run: Run) -> Examples:
    """The points that memo helped and hurt most against source; needs the run's model and data."""
    chosen = [_chosen(block) for block in run.blocks]
    none = [[] for _ in run.blocks]
    if run.job is None or not any(chosen):
        return Examples(none)
    try:
        context = _load_context(run.job, run.facts.get("fingerprint"))
        figures = [
            [_figure(context, block.dataset, verdict, point) for verdict, point in telling]
            for block, telling in zip(run.blocks, chosen, strict=True)
        ]
    except (MemoError, OSError, ImportError) as error:
        return Examples(none, f"Pictures need the run's model and data, which cannot be had here ({error}).")
    return Examples(figures)


def _chosen(block: ResultBlock) -> list[tuple[str, ChangedPoint]]:
    helped, hurt = most_changed_points(block, "memo", "source", SHOWN_POINTS)
    return [("set right", point) for point in helped] + [("made wrong", point) for point in hurt]


def _load_context(job: EvaluationJob, fingerprint: str | None) -> WorkerContext:
    context = WorkerContext(job)
    if fingerprint not in (None, context.fingerprint()):
        raise ConfigError(f"{job.model}: the weights are no longer those of the run")
    return context


def _figure(context: WorkerContext, dataset: str, verdict: str, point: ChangedPoint) -> Figure:
    classifier, data = _part(context, dataset, point)
    options = {"seed": context.job.seed, **context.job.options.get("memo", {})}
    robust = METHODS["memo"](classifier, **options)
    truth = classifier.labels[point.target] if classifier.labels else str(point.target)
    where = f"{point.shift.corruption} at level {point.shift.severity}, " if point.shift.corruption else ""
    caption = (
        f"{where}point {data.id(point.position)}, {verdict} (true class: {truth}, whose probability "
        f"{'rose' if point.gain > 0 else 'fell'} by at least {abs(100 * point.gain):.0f} points)"
    )
    return Figure(explained(robust, data, point.position, truth), caption)


def _part(context: WorkerContext, dataset: str, point: ChangedPoint) -> tuple[Classifier, Dataset]:
    for classifier, data in context.parts:
        if (data.name, data.corruption, data.severity) == (dataset, *point.shift) and point.position < len(
            data
        ):
            return classifier, data
    raise ConfigError(f"{dataset}: is no longer the data of the run")


def explained(robust: Method[Any], data: Dataset, position: int, truth: str) -> Image.Image:
    """A point and some of its views, with the answers to them before and after adapting."""
    sample = data[position]
    seen = robust.explain(sample.image, sample_id=sample.id)
    return view_panel(
        [robust.classifier.point(sample.image).fitted, *robust.classifier.pictures(seen.views[:SHOWN_VIEWS])],
        [seen.prediction.source, *seen.before[:SHOWN_VIEWS]],
        [seen.prediction, *seen.after[:SHOWN_VIEWS]],
        truth,
    )
