"""What all methods share: points in, predictions out, the model unchanged."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, overload

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import InputError
from memo_tta.image import ImageLike
from memo_tta.methods.episode import episode
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.options import AnyOptions, build_options
from memo_tta.methods.prediction import Prediction
from memo_tta.models.classifier import Classifier, Point
from memo_tta.seeding import SampleId, content_id, sample_rng


@dataclass
class Batch:
    """The points that a method takes at once; most methods take one."""

    points: list[Point]
    rngs: list[np.random.Generator]
    ledger: Ledger

    @property
    def x(self) -> Tensor:
        with torch.inference_mode(False):  # a tensor made under inference_mode cannot have a gradient
            return torch.stack([point.x for point in self.points])


@dataclass(frozen=True)
class Outcome:
    """What a method found for one point; logits of None leave the source prediction standing."""

    logits: Tensor | None
    adapted: bool = False
    reason: str | None = None
    marginal_entropy: float | None = None


class Method(ABC, Generic[AnyOptions]):
    """A way to predict. Calling it maps normalised [N, ...] to logits [N, K]; each point on its own."""

    options_type: Any  # the dataclass of its options
    from_settings: ClassVar[frozenset[str]] = frozenset()  # options that default to the classifier's

    def __init__(self, classifier: Classifier, **options: Any):
        settings = {name: value for name, value in classifier.settings.items() if name in self.from_settings}
        self.classifier = classifier
        self.options: AnyOptions = build_options(self.options_type, {**settings, **options})

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
            predictions += self.predict_points(points, ids[part], Ledger())
        return predictions

    def predict_points(
        self, points: list[Point], ids: Sequence[SampleId | None], ledger: Ledger
    ) -> list[Prediction]:
        """Predict the points that the method takes at once, with what other methods did for them."""
        batch = self._batch(points, ids, ledger)
        return self._predictions(batch, self.run(batch))

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [N, K] of normalised inputs [N, ...], without gradient, on their device."""
        if x.ndim < 2 or len(x) == 0:
            raise InputError(f"input: expected a batch of at least one point, got shape {tuple(x.shape)}")
        rows: list[Tensor] = []
        for part in x.split(self.points):
            points = [self.classifier.tensor_point(one) for one in part]
            batch = self._batch(points, [None] * len(part), Ledger())
            rows += [logits for logits, _ in self._settled(batch, self.run(batch))]
        return torch.stack(rows).to(x.device)

    def source_logits(self, batch: Batch) -> Tensor:
        """The module's own logits [n, K], as it came, computed once per batch."""

        def compute() -> Tensor:
            with episode(self.classifier.module), torch.no_grad():
                return self.classifier(batch.x)

        return batch.ledger.once("source", compute, "predict")

    def _batch(self, points: list[Point], ids: Sequence[SampleId | None], ledger: Ledger) -> Batch:
        rngs = [
            sample_rng(self.options.seed, _content(point) if sample_id is None else sample_id)
            for point, sample_id in zip(points, ids, strict=True)
        ]
        return Batch(points, rngs, ledger)

    def _settled(self, batch: Batch, outcomes: list[Outcome]) -> Iterator[tuple[Tensor, Outcome]]:
        """Logits per point: the method's if it has finite ones, else the source's and why."""
        for index, outcome in enumerate(outcomes):
            if outcome.logits is not None and _is_answer(outcome.logits):
                yield outcome.logits.detach(), outcome
                continue
            source = self.source_logits(batch)[index]
            reason = outcome.reason or "the adapted model's logits are not finite"
            if not _is_answer(source):
                reason = "the model's own logits for this input are not finite"
            yield source, Outcome(None, False, reason, outcome.marginal_entropy)

    def _predictions(self, batch: Batch, outcomes: list[Outcome]) -> list[Prediction]:
        labels, source = self.classifier.labels, self.source_logits(batch).cpu()
        return [
            Prediction(
                logits.cpu(),
                labels,
                outcome.adapted,
                outcome.reason,
                outcome.marginal_entropy,
                before=Prediction(before, labels, reason="before adaptation"),
            )
            for (logits, outcome), before in zip(self._settled(batch, outcomes), source, strict=True)
        ]


def _is_answer(logits: Tensor) -> bool:
    """Whether they rank the classes: -inf rules a class out, NaN and +inf say nothing."""
    return bool(logits.max().isfinite())


def _content(point: Point) -> str:
    if isinstance(point.whole, Tensor):
        return content_id(point.whole.cpu().reshape(-1).view(torch.uint8).numpy())
    return content_id(point.whole)
