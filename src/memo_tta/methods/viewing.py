"""Methods that look at views of the point."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError, InputError
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Options, check_at_least_zero, check_count, check_share
from memo_tta.methods.prediction import Prediction
from memo_tta.models.classifier import Classifier, Point
from memo_tta.objectives import marginal_log_probabilities, weighted_log_probabilities
from memo_tta.registry import unknown_name
from memo_tta.views import AUGMENTATIONS, Augmentation, AugMix, Restore

DrawViews = Callable[[], Tensor]
PRECISIONS = ("float32", "bf16")
WEIGHTINGS = ("uniform", "confidence")


@dataclass(frozen=True, kw_only=True)
class ViewOptions(Options):
    """How many views, made how, and how many go through the model at a time."""

    n_views: int = 64
    augment: str | Augmentation = "augmix"
    micro_batch: int | None = None
    precision: str = "float32"  # or "bf16": products of matrices in bfloat16, weights and sums as they are
    weighting: str = "uniform"  # of views in their average; "confidence": of groups of them, by entropy
    temperature: float = 2.0  # of that: 0 is uniform
    early_views: int | None = None  # leave points alone where so many views, seen first, agree with source
    early_confidence: float = 0.9  # ... and are on average at least this sure

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_views", self.n_views)
        if self.micro_batch is not None:
            check_count("micro_batch", self.micro_batch)
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if self.weighting not in WEIGHTINGS:
            raise unknown_name("weighting", self.weighting, WEIGHTINGS)
        check_at_least_zero("temperature", self.temperature)
        if self.early_views is not None:
            check_count("early_views", self.early_views)
        check_share("early_confidence", self.early_confidence, "(0, 1]", self.early_confidence != 0)
        if isinstance(self.augment, str):
            _ = AUGMENTATIONS[self.augment]
        elif not callable(self.augment):
            raise ConfigError(f"augment: expected a name or a callable, got {self.augment!r}")


AnyViewOptions = TypeVar("AnyViewOptions", bound=ViewOptions)


class ViewMethod(Method[AnyViewOptions]):
    """Draws views of one point at a time, or is given them."""

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._augment = build_augmentation(self.options.augment, classifier)

    @property
    def n_views(self) -> int:
        """Of the next point."""
        return self.options.n_views

    def run(self, batch: Batch) -> list[Outcome]:
        return [self.run_point(batch, self._drawing(batch))]

    def marginal(self, logits: Tensor) -> Tensor:
        """Log of the average prediction over the views, as it is weighted."""
        if self.options.weighting == "uniform":
            return marginal_log_probabilities(logits)
        return weighted_log_probabilities(logits, self.options.temperature, self._groups(len(logits)))

    def _groups(self, n: int) -> Sequence[int] | None:
        """How many views each group has; None where every view stands for itself."""
        return self._augment.groups(n) if isinstance(self._augment, Restore) else None

    def agreed(self, label: int, views: Tensor) -> str | None:
        """Why the source's label needs no more views than the first ones, if it needs none."""
        with torch.no_grad():
            scores = self.classifier(views[: self.options.early_views]).softmax(dim=1)
        confidence = float(scores[:, label].mean())
        if confidence < self.options.early_confidence or bool((scores.argmax(dim=1) != label).any()):
            return None
        return f"the first {len(scores)} views agree with the source, confidence {confidence:.3f}"

    def computing(self) -> torch.autocast:
        """The precision that the model computes in."""
        is_reduced = self.options.precision == "bf16"
        return torch.autocast(self.classifier.device.type, torch.bfloat16, enabled=is_reduced)

    @abstractmethod
    def run_point(self, batch: Batch, draw: DrawViews) -> Outcome:
        """The outcome for a batch of one point, whose views `draw` gives."""

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
        with torch.inference_mode(False):
            views = views.detach().clone()
        batch = self._batch([self.classifier.tensor_point(x)], [None], Ledger())
        (prediction,) = self._predictions(batch, [self.run_point(batch, lambda: views)])
        return prediction

    @property
    def first_views(self) -> Hashable:
        """What tells the first views of a point, and what is computed from them, from other methods'."""
        options = self.options
        augment = options.augment if isinstance(options.augment, str) else id(options.augment)
        return "views", options.seed, self.n_views, augment, options.precision

    def _drawing(self, batch: Batch) -> DrawViews:
        """Draws new views at every call; the first ones are shared with methods that draw alike."""
        (point,), (rng,) = batch.points, batch.rngs
        is_first = True

        def draw_first() -> tuple[Tensor, Mapping[str, Any]]:
            return self._draw(point, rng), rng.bit_generator.state

        def draw() -> Tensor:
            nonlocal is_first
            if not is_first:
                with batch.ledger.stage("views"):
                    return self._draw(point, rng)
            is_first = False
            views, state = batch.ledger.once(self.first_views, draw_first, "views")
            rng.bit_generator.state = state  # what is drawn next does not depend on who drew before
            return views

        return draw

    def _draw(self, point: Point, rng: np.random.Generator) -> Tensor:
        n = self.n_views
        image = point.whole if getattr(self._augment, "whole_image", False) else point.fitted
        if isinstance(self._augment, AugMix) and (taken := self.classifier.preprocessing) is not None:
            return self._augment.normalised(image, n, rng, taken.mean, taken.std, self.classifier.device)
        views = self._augment(image, n, rng)
        if not isinstance(views, Tensor) or views.ndim < 1 or len(views) != n:
            got = list(views.shape) if isinstance(views, Tensor) else type(views).__name__
            raise InputError(f"augment: expected a tensor of {n} views, got {got}")
        return self.classifier.normalise(views.detach())


def build_augmentation(augment: str | Augmentation, classifier: Classifier) -> Augmentation:
    if not isinstance(augment, str):
        return augment
    if classifier.size is None:
        raise ConfigError(
            f"augment: {augment!r} is for images, and this classifier takes tensors: "
            "pass your own, augment=make_views with make_views(x, n, rng)"
        )
    return AUGMENTATIONS[augment](classifier.size)
