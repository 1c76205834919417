"""What all methods share: points in, predictions out, the model unchanged."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, overload

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import InputError
from memo_tta.image import ImageLike
from memo_tta.methods.episode import episode, run_exclusively
from memo_tta.methods.options import AnyOptions, build_options, declarations, layered
from memo_tta.methods.prediction import Explanation, Prediction, Status
from memo_tta.methods.shared_work import SharedWork
from memo_tta.models.classifier import Classifier, Point
from memo_tta.seeding import SampleId, content_id, sample_rng


@dataclass(frozen=True)
class Batch:
    """The points that a method takes at once; most methods take one."""

    points: list[Point]
    rngs: list[np.random.Generator]
    work: SharedWork
    explain: bool = False  # whether outcomes should tell what the model said of the views

    @property
    def x(self) -> Tensor:
        return torch.stack([point.x for point in self.points])


@dataclass(frozen=True)
class SeenViews:
    """Views that a method looked at, with the model's logits (views, classes) before and after adapting."""

    views: Tensor
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Outcome:
    """What a method found for one point; logits of None leave the source prediction standing."""

    status: Status
    logits: Tensor | None = None
    reason: str | None = None
    marginal_entropy: float | None = None
    seen: SeenViews | None = None


class Method(ABC, Generic[AnyOptions]):
    """A way to predict. Calling it maps normalised [N, ...] to logits [N, K]; each point on its own."""

    options_type: Any  # the dataclass of its options
    from_settings: ClassVar[frozenset[str]] = frozenset()  # options that default to the classifier's
    needs_gradients: ClassVar[bool] = False

    def __init_subclass__(cls, **_: Any) -> None:
        """Show the options in help() as they are declared."""
        if "options_type" in vars(cls):
            known = declarations(cls.options_type).values()
            keywords = [
                inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default) for o in known
            ]
            classifier = inspect.Parameter("classifier", inspect.Parameter.POSITIONAL_OR_KEYWORD)
            cls.__signature__ = inspect.Signature([classifier, *keywords])
            lines = [f"    {o.name} ({o.shown_values}): {o.meaning}" for o in known]
            cls.__doc__ = "\n".join([inspect.getdoc(cls) or "", "", "Options:", *lines])

    def __init__(self, classifier: Classifier, **options: Any):
        self.classifier = classifier
        self.options: AnyOptions = self.resolve(classifier.settings, options)

    @classmethod
    def resolve(cls, settings: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """The options that hold: those given, else the model's settings, else the defaults."""
        own = {name: value for name, value in settings.items() if name in cls.from_settings}
        return build_options(cls.options_type, layered(cls.options_type, own, options))

    @property
    def points(self) -> int:
        """How many points the method takes at once."""
        return 1

    @property
    def online(self) -> bool:
        """Whether state lives on from one batch of points to the next."""
        return False

    def reset(self) -> None:
        """Forget all that lives on between points."""

    @abstractmethod
    def run(self, batch: Batch) -> list[Outcome]:
        """One outcome per point; the module is as before when it returns or raises."""

    @overload
    def predict(
        self, image: list[Any] | tuple[Any, ...], *, sample_id: Sequence[SampleId] | None = None
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, image: ImageLike | Tensor | Point, *, sample_id: SampleId | None = None
    ) -> Prediction: ...
    def predict(self, image: Any, *, sample_id: Any = None) -> Prediction | list[Prediction]:
        """Adapt to the image and predict; a list gives a list.

        Views depend on the seed and the sample id, by default made from the content of the image.
        """
        if not isinstance(image, list | tuple):
            (prediction,) = self.predict([image], sample_id=None if sample_id is None else [sample_id])
            return prediction
        ids = [None] * len(image) if sample_id is None else list(sample_id)
        if len(ids) != len(image):
            raise InputError(f"sample_id: expected one for each of {len(image)} images, got {len(ids)}")
        predictions: list[Prediction] = []
        for start in range(0, len(image), self.points):
            part = slice(start, start + self.points)
            points = [self.classifier.point(one) for one in image[part]]
            predictions += self.predict_points(points, ids[part], SharedWork())
        return predictions

    def predict_points(
        self, points: list[Point], ids: Sequence[SampleId | None], work: SharedWork
    ) -> list[Prediction]:
        """Predict the points that the method takes at once, with what other methods did for them."""
        return [answer.prediction for answer in self._answers(Batch(points, self._rngs(points, ids), work))]

    def explain(
        self,
        image: ImageLike | Tensor | Point,
        *,
        sample_id: SampleId | None = None,
        work: SharedWork | None = None,
    ) -> Explanation:
        """Predict one image; where the method adapted to views or averaged them, list them and the model's
        answers to them."""
        points = [self.classifier.point(image)]
        batch = Batch(points, self._rngs(points, [sample_id]), work or SharedWork(), explain=True)
        (answer,) = self._answers(batch)
        return answer

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [N, K] of normalised inputs [N, ...], without gradient, on their device."""
        if x.ndim < 2 or len(x) == 0:
            raise InputError(f"input: expected a batch of at least one point, got shape {tuple(x.shape)}")
        rows: list[Tensor] = []
        for part in x.split(self.points):
            points = [self.classifier.tensor_point(one) for one in part]
            batch = Batch(points, self._rngs(points, [None] * len(part)), SharedWork())
            rows += run_exclusively(self.classifier.module, partial(self._logits, batch))
        return torch.stack(rows).to(x.device)

    def source_logits(self, batch: Batch) -> Tensor:
        """The module's own logits [n, K], computed once per batch; call it before weights are changed."""

        def compute() -> Tensor:
            with episode(self.classifier.module), torch.no_grad():
                return self.classifier(batch.x)

        return batch.work.once("source", compute, "source")

    def _rngs(self, points: list[Point], ids: Sequence[SampleId | None]) -> list[np.random.Generator]:
        return [
            sample_rng(self.options.seed, _content(point) if sample_id is None else sample_id)
            for point, sample_id in zip(points, ids, strict=True)
        ]

    def _answers(self, batch: Batch, run: Callable[[], list[Outcome]] | None = None) -> list[Explanation]:
        """Predictions of the batch, from `run` instead of the method's own if given."""
        run = run or (lambda: self.run(batch))
        return run_exclusively(self.classifier.module, lambda: list(self._explained(batch, run())))

    def _logits(self, batch: Batch) -> list[Tensor]:
        return [logits for logits, _ in self._settled(batch, self.run(batch))]

    def _settled(self, batch: Batch, outcomes: list[Outcome]) -> Iterator[tuple[Tensor, Outcome]]:
        """Logits per point: the method's if it has finite ones, else the source's and why."""
        for index, outcome in enumerate(outcomes):
            if outcome.logits is not None and _is_answer(outcome.logits):
                yield outcome.logits.detach(), outcome
                continue
            source = self.source_logits(batch)[index]
            status, reason = outcome.status, outcome.reason
            if not _is_answer(source):
                status, reason = Status.NOT_FINITE, "the model's own logits for this input are not finite"
            elif outcome.logits is not None:
                status, reason = Status.NOT_FINITE, "the adapted model's logits are not finite"
            yield source, Outcome(status, None, reason, outcome.marginal_entropy, outcome.seen)

    def _explained(self, batch: Batch, outcomes: list[Outcome]) -> Iterator[Explanation]:
        labels, sources = self.classifier.labels, self.source_logits(batch).cpu()
        for (logits, outcome), source in zip(self._settled(batch, outcomes), sources, strict=True):
            before = Prediction(source, labels, reason="before adaptation")
            marginal = outcome.marginal_entropy
            if marginal is not None and not math.isfinite(marginal):
                marginal = None
            prediction = Prediction(logits.cpu(), labels, outcome.status, outcome.reason, marginal, before)
            if outcome.seen is None:
                yield Explanation(prediction, batch.x[:0], [], [])
                continue
            answers = (
                [Prediction(row.cpu(), labels) for row in rows]
                for rows in (outcome.seen.before, outcome.seen.after)
            )
            yield Explanation(prediction, outcome.seen.views, *answers)


def _is_answer(logits: Tensor) -> bool:
    """Whether they rank the classes: -inf rules a class out, NaN and +inf say nothing."""
    return bool(logits.max().isfinite())


def _content(point: Point) -> str:
    if isinstance(point.whole, Tensor):
        return content_id(point.whole.cpu().reshape(-1).view(torch.uint8).numpy())
    return content_id(point.whole)
