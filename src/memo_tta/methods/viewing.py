"""Methods that look at views of the point."""

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError, InputError
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Options, check_count
from memo_tta.methods.prediction import Prediction
from memo_tta.models.classifier import Classifier, Point
from memo_tta.registry import unknown_name
from memo_tta.views import AUGMENTATIONS, Augmentation, AugMix, Restore

PRECISIONS = ("float32", "bf16")
NOTHING_ADAPTED = "averaged over the views, nothing adapted"


class DrawViews(Protocol):
    """Draws new views of a point at every call; `first` shows so many that come first, and draws nothing."""

    def __call__(self, first: int | None = None) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class ViewOptions(Options):
    """How many views, made how, and how many go through the model at a time."""

    n_views: int = 64
    augment: str | Augmentation = "augmix"
    micro_batch: int | None = None
    precision: str = "float32"  # or "bf16": products of matrices in bfloat16, weights and sums as they are

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_views", self.n_views)
        if self.micro_batch is not None:
            check_count("micro_batch", self.micro_batch)
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
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
        (prediction,) = self._predictions(batch, [self.run_point(batch, lambda first=None: views[:first])])
        return prediction

    @property
    def first_views(self) -> Hashable:
        """What tells the first views of a point, and what is computed from them, from other methods'."""
        options = self.options
        augment = options.augment if isinstance(options.augment, str) else id(options.augment)
        return "views", options.seed, self.n_views, augment, options.precision

    def _drawing(self, batch: Batch) -> DrawViews:
        """The first views are shared with methods that draw alike."""
        (point,), (rng,) = batch.points, batch.rngs
        unseen: list[Tensor] = []  # the first views, as long as only `first` showed some of them
        is_first = True

        def draw_first() -> tuple[Tensor, Mapping[str, Any]]:
            return self._draw(point, rng), rng.bit_generator.state

        def draw(first: int | None = None) -> Tensor:
            nonlocal is_first
            if first is not None and isinstance(self._augment, Restore):
                with batch.ledger.stage("views"):  # nothing is restored for a point that may not need it
                    return self.classifier.normalise(
                        self._augment.plain(self._image(point), first, deepcopy(rng))
                    )
            if is_first:
                views, state = batch.ledger.once(self.first_views, draw_first, "views")
                rng.bit_generator.state = state  # what is drawn next does not depend on who drew before
                unseen.append(views)
                is_first = False
            if first is not None:
                return unseen[0][:first]
            if unseen:
                return unseen.pop()
            with batch.ledger.stage("views"):
                return self._draw(point, rng)

        return draw

    def _image(self, point: Point) -> Any:
        return point.whole if getattr(self._augment, "whole_image", False) else point.fitted

    def _draw(self, point: Point, rng: np.random.Generator) -> Tensor:
        n, image = self.n_views, self._image(point)
        if isinstance(self._augment, AugMix) and (taken := self.classifier.preprocessing) is not None:
            return self._augment.normalised(image, n, rng, taken.mean, taken.std, self.classifier.device)
        if isinstance(self._augment, Restore):
            return self.classifier.normalise(self._augment(image, n, rng, self.classifier.device))
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
