"""What views of a point a method sees: drawn by an augmentation, or given by the caller."""

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from memo_tta.errors import ConfigError, InputError
from memo_tta.methods.options import Number, OneOf, Options, option
from memo_tta.methods.precision import PRECISIONS
from memo_tta.methods.shared_work import SharedWork
from memo_tta.models.classifier import Classifier, Point
from memo_tta.views import AUGMENTATIONS, Augmentation


@dataclass(frozen=True, kw_only=True)
class ViewOptions(Options):
    """How many views, made how, and how they go through the model."""

    n_views: int = option(64, Number("[1, inf)", whole=True), "B, the number of views")
    augment: str | Augmentation = option(
        "augmix",
        OneOf("augmentation", AUGMENTATIONS, or_callable=True),
        "how views are made: AugMix, standard (crop and flip), restore (crops and flips of the image and of "
        "a restored version of it), or a function (image, n, rng)",
    )
    micro_batch: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        "how many views go through the model at a time, to save memory; statistics that are mixed are then "
        "the point's, not the views'",
    )
    precision: str = option(
        "float32",
        OneOf("precision", PRECISIONS),
        "bf16 computes products of matrices in bfloat16, for processors that have it",
    )


class Views(Protocol):
    """The views of one point, as the module takes them."""

    def first(self, n: int) -> Tensor:
        """n views to look at first, at little cost; what `draw` gives does not depend on it."""
        ...

    def draw(self) -> Tensor:
        """All views [B, ...], new ones at every call."""
        ...


class GivenViews:
    """Views of the caller's, the same at every draw."""

    def __init__(self, views: Tensor):
        self._views = views

    def first(self, n: int) -> Tensor:
        return self._views[:n]

    def draw(self) -> Tensor:
        return self._views


class Augmenter:
    """An augmentation for one classifier, whose capabilities are the augmentation's own.

    An augmentation may have `whole_image` (it takes the image as loaded), `normalised` (it makes views as the
    module takes them, where it is), `preview` (it makes a few views at little cost) and `groups` (which of
    its views belong together); `memo_tta.views.custom` says how they are called.
    """

    def __init__(self, classifier: Classifier, augment: str | Augmentation):
        self._classifier = classifier
        self._augment: Any = augment if callable(augment) else _named(augment, classifier)
        self.key: Hashable = id(augment) if callable(augment) else augment  # the same for the same views

    def __call__(self, point: Point, n: int, rng: np.random.Generator) -> Tensor:
        normalised, taken = getattr(self._augment, "normalised", None), self._classifier.preprocessing
        if normalised is not None and taken is not None:
            views = normalised(self._image(point), n, rng, taken.mean, taken.std, self._classifier.device)
            return _counted(views, n)
        return self._taken(self._augment(self._image(point), n, rng), n)

    def preview(self, point: Point, n: int, rng: np.random.Generator) -> Tensor | None:
        """n views at little cost, if the augmentation knows any."""
        preview = getattr(self._augment, "preview", None)
        return None if preview is None else self._taken(preview(self._image(point), n, rng), n)

    def groups(self, n: int) -> Sequence[int] | None:
        """How many of n views each group has; None where every view stands for itself."""
        groups = getattr(self._augment, "groups", None)
        return None if groups is None else list(groups(n).values())

    def _image(self, point: Point) -> Any:
        return point.whole if getattr(self._augment, "whole_image", False) else point.fitted

    def _taken(self, views: Any, n: int) -> Tensor:
        return self._classifier.normalise(_counted(views, n).detach())


class DrawnViews:
    """Views of an augmentation; the first ones are shared with methods that draw alike."""

    def __init__(
        self,
        augmenter: Augmenter,
        options: ViewOptions,
        point: Point,
        rng: np.random.Generator,
        work: SharedWork,
    ):
        self._augmenter, self._n, self._point, self._rng = augmenter, options.n_views, point, rng
        self._ledger, self._key = work, ("views", options.seed, options.n_views, augmenter.key)
        self._undrawn: Tensor | None = None  # the first views, where only `first` has shown some
        self._is_first = True

    def first(self, n: int) -> Tensor:
        with self._ledger.stage("views"):
            preview = self._augmenter.preview(self._point, n, deepcopy(self._rng))
        if preview is not None:
            return preview
        if self._undrawn is None:
            self._undrawn = self.draw()
        return self._undrawn[:n]

    def draw(self) -> Tensor:
        if self._undrawn is not None:
            views, self._undrawn = self._undrawn, None
            return views
        if self._is_first:
            self._is_first = False
            views, state = self._ledger.once(self._key, self._make_first, "views")
            self._rng.bit_generator.state = state  # what is drawn next does not depend on who drew before
            return views
        with self._ledger.stage("views"):
            return self._make()

    def _make_first(self) -> tuple[Tensor, Mapping[str, Any]]:
        return self._make(), self._rng.bit_generator.state

    def _make(self) -> Tensor:
        return self._augmenter(self._point, self._n, self._rng)


def _counted(views: Any, n: int) -> Tensor:
    if not isinstance(views, Tensor) or views.ndim < 1 or len(views) != n:
        got = list(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise InputError(f"augment: expected a tensor of {n} views, got {got}")
    return views


def _named(augment: str, classifier: Classifier) -> Augmentation:
    if classifier.size is None:
        raise ConfigError(
            f"augment: {augment!r} is for images, and this classifier takes tensors: "
            "pass your own, augment=make_views with make_views(x, n, rng)"
        )
    return AUGMENTATIONS[augment](classifier.size)
