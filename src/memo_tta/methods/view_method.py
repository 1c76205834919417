"""Methods that look at views of one point."""

from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor

from memo_tta.errors import InputError
from memo_tta.methods.gradient import forward_in_chunks
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.precision import in_precision
from memo_tta.methods.prediction import Prediction
from memo_tta.methods.shared_work import SharedWork
from memo_tta.methods.view_source import Augmenter, DrawnViews, GivenViews, ViewOptions, Views
from memo_tta.models.batch_norm import MixedStatistics
from memo_tta.models.classifier import Classifier

AnyViewOptions = TypeVar("AnyViewOptions", bound=ViewOptions)


class ViewMethod(Method[AnyViewOptions]):
    """Draws views of one point at a time, or is given them."""

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._augmenter = Augmenter(classifier, self.options.augment)

    @abstractmethod
    def run_point(self, batch: Batch, views: Views) -> Outcome:
        """The outcome for a batch of one point with these views."""

    def run(self, batch: Batch) -> list[Outcome]:
        (point,), (rng,) = batch.points, batch.rngs
        drawn = DrawnViews(self._augmenter, self.options, point, rng, batch.work)
        return [self.run_point(batch, drawn)]

    def predict_views(self, x: Tensor, views: Tensor) -> Prediction:
        """Predict for x, one normalised input, from given normalised views [B, ...]."""
        if x.ndim == views.ndim:
            if len(x) != 1:
                raise InputError(f"predict_views: expected one point, got {len(x)}")
            x = x[0]
        if len(views) == 0 or views.ndim != x.ndim + 1:
            raise InputError(
                f"predict_views: expected views [B, {', '.join(map(str, x.shape))}], got {list(views.shape)}"
            )
        points = [self.classifier.tensor_point(x)]
        batch = Batch(points, self._rngs(points, [None]), SharedWork())
        (answer,) = self._answers(batch, lambda: [self.run_point(batch, GivenViews(views.detach().clone()))])
        return answer.prediction

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classifier, computed in the precision of the options."""
        with in_precision(self.options.precision, self.classifier.device.type):
            return self.classifier(x)

    @torch.no_grad()
    def view_logits(self, views: Tensor) -> Tensor:
        """Logits of the views, without a graph."""
        return forward_in_chunks(self.forward, views, self.options.micro_batch)

    def settle(self, statistics: MixedStatistics, x: Tensor) -> None:
        """With micro-batches, fix mixed statistics to those of the point.

        Batch norm couples the views of a batch: chunks are exact only with statistics that are fixed before.
        """
        if self.options.micro_batch is not None:
            statistics.fix(lambda: self.forward(x))
