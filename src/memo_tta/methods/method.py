"""Base class of all methods: points in, predictions out, the model unchanged."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, cast, overload

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import InputError
from memo_tta.image import ImageLike
from memo_tta.methods.description import describe_method
from memo_tta.methods.episode import episode, run_exclusively
from memo_tta.methods.options import AnyOptions, build_options, declarations, merge_options
from memo_tta.methods.prediction import Explanation, Prediction, Status
from memo_tta.methods.shared_work import SharedWork
from memo_tta.models.batch_norm import statistics_layers
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.shift import measuring_shift
from memo_tta.seeding import SampleId, content_id, sample_rng


@dataclass(frozen=True)
class Batch:
    """The points that a method processes together; for most methods, one."""

    points: list[Point]
    rngs: list[np.random.Generator]
    works: Sequence[SharedWork]  # one for each point
    explain: bool = False  # whether outcomes should include the logits of the views

    @property
    def work(self) -> SharedWork:
        """The work of the only point."""
        (work,) = self.works
        return work

    @property
    def x(self) -> Tensor:
        """Normalised inputs [n, ...] of the module."""
        return torch.stack([point.x for point in self.points])


@dataclass(frozen=True)
class SeenViews:
    """Views that a method used, with the model's logits (views, classes) before and after adaptation."""

    views: Tensor
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Outcome:
    """The result of a method for one point; logits of None keep the source prediction."""

    status: Status
    logits: Tensor | None = None
    reason: str | None = None
    marginal_entropy: float | None = None
    seen: SeenViews | None = None


@dataclass(frozen=True)
class MeasuredPass:
    """What a forward pass tells: logits (inputs, classes) and the shift (inputs,)."""

    logits: Tensor
    shift: Tensor | None  # None if it was not measured, or if the model keeps no batch-norm statistics

    @staticmethod
    def joined(passes: "Sequence[MeasuredPass]") -> "MeasuredPass":
        """Return the inputs of all passes as one."""
        shifts = [each.shift for each in passes if each.shift is not None]
        logits = torch.cat([each.logits for each in passes])
        return MeasuredPass(logits, torch.cat(shifts) if len(shifts) == len(passes) else None)

    def single(self) -> tuple[Tensor, float | None]:
        """Return the logits (classes,) and the shift of the only input."""
        return self.logits[0], None if self.shift is None else float(self.shift[0])

    def split(self, sizes: Sequence[int]) -> "list[MeasuredPass]":
        """Return this many inputs each, as passes of their own."""
        shifts = [None] * len(sizes) if self.shift is None else torch.split(self.shift, list(sizes))
        logits = torch.split(self.logits, list(sizes))
        return [MeasuredPass(*row) for row in zip(logits, shifts, strict=True)]


class Method(ABC, Generic[AnyOptions]):
    """A way to predict; calling it maps normalised inputs [N, ...] to logits [N, K]."""

    options_type: Any  # the dataclass of the method's options
    from_settings: ClassVar[frozenset[str]] = frozenset()  # options that default to the classifier's settings
    needs_gradients: ClassVar[bool] = False  # whether predicting changes weights, by gradient steps

    def __init_subclass__(cls, **_: Any) -> None:
        """Add the declared options to the signature and the docstring that help() shows."""
        if "options_type" in vars(cls):
            declared = declarations(cls.options_type).values()
            keywords = [
                inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default) for o in declared
            ]
            classifier = inspect.Parameter("classifier", inspect.Parameter.POSITIONAL_OR_KEYWORD)
            cls.__signature__ = inspect.Signature([classifier, *keywords])
            lines = [f"    {o.name} ({o.shown_values}): {o.meaning}" for o in declared]
            cls.__doc__ = "\n".join([inspect.getdoc(cls) or "", "", "Options:", *lines])

    def __init__(self, classifier: Classifier, **options: Any):
        self.classifier = classifier
        self.options: AnyOptions = self.resolve(classifier.settings, options)
        self._statistics_layers = statistics_layers(classifier.module)

    def __repr__(self) -> str:
        return describe_method(self)

    @classmethod
    def resolve(cls, settings: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Return the effective options: those given, else the classifier's settings, else the defaults."""
        used = {name: value for name, value in settings.items() if name in cls.from_settings}
        return build_options(cls.options_type, merge_options(cls.options_type, used, options))

    @property
    def points(self) -> int:
        """How many points affect each other's predictions."""
        return 1

    @property
    def batch_points(self) -> int:
        """How many points the method takes at once."""
        return self.points

    @property
    def online(self) -> bool:
        """Whether the method keeps state from one batch of points to the next."""
        return False

    def reset(self) -> None:
        """Discard all state kept from earlier points."""

    @abstractmethod
    def run(self, batch: Batch) -> list[Outcome]:
        """Return one outcome per point; the module is restored when this returns or raises."""

    @overload
    def predict(
        self, image: list[Any] | tuple[Any, ...], *, sample_id: Sequence[SampleId] | None = None
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, image: ImageLike | Tensor | Point, *, sample_id: SampleId | None = None
    ) -> Prediction: ...
    def predict(self, image: Any, *, sample_id: Any = None) -> Prediction | list[Prediction]:
        """Adapt to the image and predict it; a list of images gives a list of predictions.

        The views depend on the seed and the sample id, which defaults to a hash of the image's content.
        """
        if not isinstance(image, list | tuple):
            (prediction,) = self.predict([image], sample_id=None if sample_id is None else [sample_id])
            return prediction
        images = cast("Sequence[Any]", image)
        ids = [None] * len(images) if sample_id is None else list(sample_id)
        if len(ids) != len(images):
            raise InputError(f"sample_id: expected one for each of {len(images)} images, got {len(ids)}")
        predictions: list[Prediction] = []
        for start in range(0, len(images), self.batch_points):
            part = slice(start, start + self.batch_points)
            points = [self.classifier.point(one) for one in images[part]]
            predictions += self.predict_points(points, ids[part], [SharedWork() for _ in points])
        return predictions

    def predict_points(
        self, points: list[Point], ids: Sequence[SampleId | None], works: Sequence[SharedWork]
    ) -> list[Prediction]:
        """Predict points that are taken at once, reusing work of other methods for the same points."""
        if self.points == 1 and len({point.x.shape for point in points}) > 1:
            rows = zip(points, ids, works, strict=True)
            return [one for p, i, w in rows for one in self.predict_points([p], [i], [w])]
        batch = Batch(points, self._rngs(points, ids), works)
        return [explanation.prediction for explanation in self._explanations(batch)]

    def explain(
        self,
        image: ImageLike | Tensor | Point,
        *,
        sample_id: SampleId | None = None,
        work: SharedWork | None = None,
    ) -> Explanation:
        """Predict one image; return the prediction, the views that the method used and their predictions."""
        points = [self.classifier.point(image)]
        batch = Batch(points, self._rngs(points, [sample_id]), [work or SharedWork()], explain=True)
        (explanation,) = self._explanations(batch)
        return explanation

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [N, K] of normalised inputs [N, ...], without gradient, on the inputs' device."""
        if x.ndim < 2 or len(x) == 0:
            raise InputError(f"input: expected a batch of at least one input, got shape {tuple(x.shape)}")
        rows: list[Tensor] = []
        for part in torch.split(x, self.batch_points):
            points = [self.classifier.tensor_point(one) for one in part.unbind()]
            batch = Batch(points, self._rngs(points, [None] * len(part)), [SharedWork() for _ in points])
            rows += run_exclusively(self.classifier.module, partial(self._logits, batch))
        return torch.stack(rows).to(x.device)

    def source_pass(self, batch: Batch) -> MeasuredPass:
        """Run the source model, once per point, and measure the shift; call it before weights change."""

        def compute() -> list[MeasuredPass]:
            with (
                episode(self.classifier.module),
                torch.no_grad(),
                measuring_shift(self._statistics_layers) as meter,
            ):
                measured = MeasuredPass(self.classifier(batch.x), meter.shift())
            return measured.split([1] * len(batch.points))

        return MeasuredPass.joined(SharedWork.once_together(batch.works, "source", compute, "source"))

    def source_logits(self, batch: Batch) -> Tensor:
        """Return the source model's logits [n, K]; call it before weights change."""
        return self.source_pass(batch).logits

    def _rngs(self, points: list[Point], ids: Sequence[SampleId | None]) -> list[np.random.Generator]:
        return [
            sample_rng(self.options.seed, _content_id(point) if sample_id is None else sample_id)
            for point, sample_id in zip(points, ids, strict=True)
        ]

    def _explanations(
        self, batch: Batch, run: Callable[[], list[Outcome]] | None = None
    ) -> list[Explanation]:
        """Run the method on the batch, or `run` in its place, and return one explanation per point."""
        run = run or (lambda: self.run(batch))
        return run_exclusively(self.classifier.module, lambda: list(self._explain(batch, run())))

    def _logits(self, batch: Batch) -> list[Tensor]:
        return [logits for logits, _ in self._with_fallback(batch, self.run(batch))]

    def _with_fallback(self, batch: Batch, outcomes: list[Outcome]) -> Iterator[tuple[Tensor, Outcome]]:
        """Yield logits and outcome of each point: the source's logits where the method has no usable ones."""
        for index, outcome in enumerate(outcomes):
            if outcome.logits is not None and _is_usable(outcome.logits):
                yield outcome.logits.detach(), outcome
                continue
            source = self.source_logits(batch)[index]
            status, reason = outcome.status, outcome.reason
            if not _is_usable(source):
                status, reason = Status.NOT_FINITE, "the model's own logits for this input are not finite"
            elif outcome.logits is not None:
                status, reason = Status.NOT_FINITE, "the adapted model's logits are not finite"
            yield source, Outcome(status, None, reason, outcome.marginal_entropy, outcome.seen)

    def _explain(self, batch: Batch, outcomes: list[Outcome]) -> Iterator[Explanation]:
        labels, source_pass = self.classifier.labels, self.source_pass(batch)
        shifts = _finite_numbers(source_pass.shift, len(outcomes))
        rows = zip(self._with_fallback(batch, outcomes), source_pass.logits.cpu(), shifts, strict=True)
        for (logits, outcome), source, shift in rows:
            before = Prediction(source, labels, reason="before adaptation", shift=shift)
            marginal = outcome.marginal_entropy
            if marginal is not None and not math.isfinite(marginal):
                marginal = None
            prediction = Prediction(
                logits.cpu(), labels, outcome.status, outcome.reason, marginal, before, shift
            )
            if outcome.seen is None:
                yield Explanation(prediction, batch.x[:0], [], [])
                continue
            view_predictions = (
                [Prediction(row.cpu(), labels) for row in rows]
                for rows in (outcome.seen.before, outcome.seen.after)
            )
            yield Explanation(prediction, outcome.seen.views, *view_predictions)


def _is_usable(logits: Tensor) -> bool:
    """Return whether the logits rank the classes: -inf only masks a class, NaN and +inf are not usable."""
    return bool(logits.max().isfinite())


def _finite_numbers(values: Tensor | None, count: int) -> list[float | None]:
    """Return the values as numbers, with None for those that are missing or not finite."""
    if values is None:
        return [None] * count
    numbers = (float(value) for value in values)
    return [number if math.isfinite(number) else None for number in numbers]


def _content_id(point: Point) -> str:
    if isinstance(point.whole, Tensor):
        return content_id(point.whole.cpu().reshape(-1).view(torch.uint8).numpy())
    return content_id(point.whole)
