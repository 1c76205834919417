"""Base class of the methods that use views of one point."""

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

NOT_NEEDED = (None, None)  # source logits and shift if no gate asks for them
AnyViewOptions = TypeVar("AnyViewOptions", bound=ViewOptions)


class ViewMethod(Method[AnyViewOptions]):
    """A method that takes one point at a time, with views drawn by an augmentation or given by the caller."""

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._augmenter = Augmenter(classifier, self.options.augment)

    @abstractmethod
    def run_point(self, batch: Batch, views: Views) -> Outcome:
        """Return the outcome for the single point of the batch, from these views."""

    def run(self, batch: Batch) -> list[Outcome]:
        (views,) = self.draw_views(batch)
        return [self.run_point(batch, views)]

    def draw_views(self, batch: Batch) -> list[Views]:
        """Return views of each point that are made when a method asks for them."""
        rows = zip(batch.points, batch.rngs, batch.works, strict=True)
        return [DrawnViews(self._augmenter, self.options, *row) for row in rows]

    def predict_views(self, x: Tensor, views: Tensor) -> Prediction:
        """Predict one normalised input, [...] or [1, ...], from given normalised views [B, ...]."""
        if x.ndim == views.ndim:
            if len(x) != 1:
                raise InputError(f"predict_views: expected one input, got {len(x)}")
            x = x[0]
        if len(views) == 0 or views.ndim != x.ndim + 1:
            raise InputError(
                f"predict_views: expected views [B, {', '.join(map(str, x.shape))}], got {list(views.shape)}"
            )
        points = [self.classifier.tensor_point(x)]
        batch = Batch(points, self._rngs(points, [None]), [SharedWork()])

        def run() -> list[Outcome]:
            # Cloned here, where inference mode is off: autograd refuses tensors that were made in it.
            return [self.run_point(batch, GivenViews(views.detach().clone()))]

        (explanation,) = self._explanations(batch, run)
        return explanation.prediction

    def source_and_shift(self, batch: Batch) -> tuple[Tensor, float | None]:
        """Return the source's logits (classes,) for the point, and its shift if it can be measured."""
        return self.source_pass(batch).single()

    def forward(self, x: Tensor) -> Tensor:
        """Return the classifier's logits, computed in the precision of the options."""
        with in_precision(self.options.precision, self.classifier.device.type):
            return self.classifier(x)

    @torch.no_grad()
    def view_logits(self, views: Tensor) -> Tensor:
        """Return the logits of the views, computed without a graph."""
        return forward_in_chunks(self.forward, views, self.options.micro_batch)

    def fix_statistics(self, statistics: MixedStatistics, x: Tensor, views: Tensor) -> None:
        """If the views need several micro-batches, fix the mixed statistics to those of the point.

        Batch norm couples the views of a batch, so chunks are exact only with statistics fixed beforehand.
        """
        if self.options.micro_batch is not None and len(views) > self.options.micro_batch:
            statistics.fix(lambda: self.forward(x))
