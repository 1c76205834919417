"""Base class of the methods that replace the last layer's answer, from the features of several points."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from memo_tta.methods.bn import BatchNormOptions
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Flag, Options, option, with_default
from memo_tta.methods.prediction import Status
from memo_tta.models.classifier import Classifier
from memo_tta.models.last_layer import LastLayer, LastLayerRecorder, recording_last_layer


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(Options):
    """How many points are predicted together."""

    batch_size: int = with_default(
        BatchNormOptions, "batch_size", 1, meaning="number of images that are predicted together"
    )


@dataclass(frozen=True, kw_only=True)
class OnlineFeatureOptions(FeatureOptions):
    """How many points are predicted together, and whether they are remembered."""

    online: bool = option(True, Flag(), "whether features are remembered from batch to batch")


AnyFeatureOptions = TypeVar("AnyFeatureOptions", bound=FeatureOptions)


class FeatureMethod(Method[AnyFeatureOptions]):
    """A method that takes one forward pass of the source model and changes no weight.

    Its state is a value that `answer` replaces, so that a prediction that fails leaves it as it was.
    """

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._recorder = LastLayerRecorder(classifier)
        self.reset()

    @property
    def points(self) -> int:
        return self.options.batch_size

    @property
    def online(self) -> bool:
        return getattr(self.options, "online", False)

    def reset(self) -> None:
        self._state: Any = None

    @abstractmethod
    def answer(self, last: LastLayer, logits: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return logits (n, classes) and the state after these points, from their source logits.

        The state is None before the first points.
        """

    def run(self, batch: Batch) -> list[Outcome]:
        last, logits = self._source(batch)
        finite = last.features.isfinite().all(dim=1) & logits.max(dim=1).values.isfinite()
        if not finite.any():
            return [Outcome(Status.NOT_FINITE, reason=NOT_FINITE)] * len(batch.points)
        answers, state = self.answer(last.of_inputs(finite), logits[finite], self._state)
        if self.online:
            self._state = state
        rows = iter(answers.to(logits.dtype))
        return [
            Outcome(Status.ADAPTED, next(rows)) if is_finite else Outcome(Status.NOT_FINITE, None, NOT_FINITE)
            for is_finite in finite
        ]

    def _source(self, batch: Batch) -> tuple[LastLayer, Tensor]:
        """Return the last layer and the source's logits (n, classes), of one pass if it was not made yet."""
        with recording_last_layer(self._recorder):
            logits = self.source_logits(batch)
            last = self._recorder.take(logits)
            if last is None:  # another method has made the source's pass
                with episode(self.classifier.module), torch.no_grad():
                    logits = self.classifier(batch.x)
                last = self._recorder.take(logits)
        assert last is not None
        return last, logits
