"""Which views a method uses: drawn by an augmentation, or given by the caller."""

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
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
    """How many views there are, how they are made, and how the model processes them."""

    n_views: int = option(64, Number("[1, inf)", whole=True), "number of views, B in the paper")
    augment: str | Augmentation = option(
        "augmix",
        OneOf("augmentation", AUGMENTATIONS, or_callable=True),
        "how views are made: AugMix, augmix-mild (the same on crops of at least 80 % of the image), standard "
        "(random crop and flip), restore (the image and restored versions of it, up to 64 pixels also "
        "translated and flipped), or a function (image, n, rng)",
    )
    micro_batch: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        "maximum number of views per forward pass, to save memory; if there are more, batch-norm mixing "
        "uses the statistics of the image, or of the first view of a group, instead of all views",
    )
    precision: str = option(
        "float32",
        OneOf("precision", PRECISIONS),
        "bf16 computes matrix products in bfloat16, for processors that support it",
    )


class Views(Protocol):
    """The views of one point, as normalised inputs of the module."""

    def first(self, n: int) -> Tensor:
        """Return n views for a gate, cheaply if possible; this does not change what `draw` returns."""
        ...

    def draw(self, at_most: int | None = None) -> Tensor:
        """Return views [B, ...]; if they are drawn, new ones at every call, and no more than `at_most`."""
        ...

    @property
    def starts_with_image(self) -> bool:
        """Whether the first view is known to be the image itself."""
        ...

    def mixed_groups(self, n: int) -> list[int]:
        """Return the sizes of the last groups of n views, those to classify with mixed statistics."""
        ...


class GivenViews:
    """Views given by the caller; every draw returns all of them, as one group."""

    starts_with_image = False

    def __init__(self, views: Tensor):
        self._views = views

    def first(self, n: int) -> Tensor:
        return self._views[:n]

    def draw(self, at_most: int | None = None) -> Tensor:
        return self._views

    def mixed_groups(self, n: int) -> list[int]:
        return [n]


class Augmenter:
    """An augmentation that returns normalised inputs of one classifier.

    An augmentation may have `whole_image` (it takes the image as loaded), `normalised` (it makes normalised
    views on the module's device), `preview` (it makes a few views cheaply), `max_views` (how many of its
    views differ), `groups` (which of its views belong together), `running_views` (how many keep running
    statistics) and `starts_with_image`; `memo_tta.views.custom` documents them.
    """

    def __init__(self, classifier: Classifier, augment: str | Augmentation):
        self._classifier = classifier
        self._augment: Any = augment if callable(augment) else _build_augmentation(augment, classifier)
        self.key: Hashable = id(augment) if callable(augment) else augment  # identifies the augmentation

    def count(self, n: int) -> int:
        """Return how many views there are if n are asked for."""
        most = getattr(self._augment, "max_views", None)
        return n if most is None else min(n, most)

    def __call__(self, point: Point, n: int, rng: np.random.Generator) -> Tensor:
        """Return n normalised views of the point."""
        normalised, preprocessing = getattr(self._augment, "normalised", None), self._classifier.preprocessing
        if normalised is not None and preprocessing is not None:
            mean, std, device = preprocessing.mean, preprocessing.std, self._classifier.device
            return _checked(normalised(self._image(point), n, rng, mean, std, device), n)
        return self._normalise(self._augment(self._image(point), n, rng), n)

    def preview(self, point: Point, n: int, rng: np.random.Generator) -> Tensor | None:
        """Return at most n views that are cheap to make, or None if the augmentation has no preview."""
        preview = getattr(self._augment, "preview", None)
        if preview is None:
            return None
        views = preview(self._image(point), n, rng)
        return self._normalise(views, min(n, len(views)))

    def groups(self, n: int) -> Sequence[int] | None:
        """Return how many of n views each group has; None if the augmentation does not group n views."""
        groups = getattr(self._augment, "groups", None)
        sizes = [] if groups is None else list(groups(n).values())
        return sizes if sum(sizes) == n else None

    @property
    def starts_with_image(self) -> bool:
        """Whether the first view is the image itself."""
        return getattr(self._augment, "starts_with_image", False)

    def mixed_groups(self, n: int) -> list[int]:
        """Return the sizes of the last groups of n views, those to classify with mixed statistics."""
        running = min(n, getattr(self._augment, "running_views", 0))
        sizes = self.groups(n) or [running, n - running]
        return [size for size, end in zip(sizes, accumulate(sizes), strict=True) if end > running]

    def _image(self, point: Point) -> Any:
        return point.whole if getattr(self._augment, "whole_image", False) else point.fitted

    def _normalise(self, views: Any, n: int) -> Tensor:
        return self._classifier.normalise(_checked(views, n).detach())


class DrawnViews:
    """Views drawn by an augmentation; the first draw is shared with methods that draw the same views."""

    def __init__(
        self,
        augmenter: Augmenter,
        options: ViewOptions,
        point: Point,
        rng: np.random.Generator,
        work: SharedWork,
    ):
        self._augmenter, self._point, self._rng = augmenter, point, rng
        self._n = augmenter.count(options.n_views)
        self._work, self._key = work, ("views", options.seed, augmenter.key)
        self._pending: Tensor | None = None  # views drawn by `first` that `draw` has not returned yet
        self._is_first_draw = True

    @property
    def starts_with_image(self) -> bool:
        return self._augmenter.starts_with_image

    def mixed_groups(self, n: int) -> list[int]:
        return self._augmenter.mixed_groups(n)

    def first(self, n: int) -> Tensor:
        with self._work.stage("views"):
            preview = self._augmenter.preview(self._point, n, deepcopy(self._rng))
        if preview is not None:
            return preview
        if self._pending is None:
            self._pending = self.draw()
        return self._pending[:n]

    def draw(self, at_most: int | None = None) -> Tensor:
        if self._pending is not None:
            views, self._pending = self._pending, None
            return views[:at_most]
        n = self._n if at_most is None else min(self._n, at_most)
        if self._is_first_draw:
            self._is_first_draw = False
            views, state = self._work.once((*self._key, n), lambda: self._make_with_state(n), "views")
            # Later draws must not depend on whether this method or another one made the first views.
            self._rng.bit_generator.state = state
            return views
        with self._work.stage("views"):
            return self._make(n)

    def _make_with_state(self, n: int) -> tuple[Tensor, Mapping[str, Any]]:
        """Return n new views and the state of the random generator after drawing them."""
        return self._make(n), self._rng.bit_generator.state

    def _make(self, n: int) -> Tensor:
        return self._augmenter(self._point, n, self._rng)


def _checked(views: Any, n: int) -> Tensor:
    """Return the views if they are a tensor of n, else raise InputError."""
    if not isinstance(views, Tensor) or views.ndim < 1 or len(views) != n:
        got = list(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise InputError(f"augment: expected a tensor of {n} views, got {got}")
    return views


def _build_augmentation(name: str, classifier: Classifier) -> Augmentation:
    if classifier.size is None:
        raise ConfigError(
            f"augment: {name!r} is for images, and this classifier takes tensors: "
            "pass a function, augment=make_views with make_views(x, n, rng)"
        )
    return AUGMENTATIONS[name](classifier.size)
