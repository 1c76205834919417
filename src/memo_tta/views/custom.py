"""The user's own augmentation: `augment(input, n, rng)` returns n views, for any kind of input.

A function that makes all views at once has this form; `per_view` wraps a function that makes a single view.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from memo_tta.errors import InputError


class Augmentation(Protocol):
    """The type of `augment=`: a function from an input to n views.

    An image is passed as uint8 (height, width, 3), resized and cropped to the classifier's size (or as
    loaded, if the augmentation has `whole_image = True`), and its views are returned in 0..1. Any other
    input is passed and returned as the tensor that the module takes.

    An augmentation may have more methods, all of them optional:
    - `normalised(image, n, rng, mean, std, device)`: return the same views normalised, on the device;
    - `preview(image, n, rng)`: return at most n views, for gates that look at a few views first;
    - `max_views`: how many of its views differ; no more are asked for (None: there is no limit);
    - `groups(n)`: return the number of views in each named group, in order, adding up to n;
    - `running_views`: how many of the first views keep the running batch-norm statistics when the others are
      classified with mixed ones; the last of them must end a group;
    - `starts_with_image`: whether the first view is the image itself.
    """

    def __call__(self, image: Any, n: int, rng: np.random.Generator, /) -> Tensor:
        """Return n views of the image, or of another input."""
        ...


def per_view(make_view: Callable[[Any, np.random.Generator], Any]) -> Augmentation:
    """Return an augmentation that calls `make_view(input, rng)` once for each view.

    A view is a tensor; a view of an image may also be a PIL image or a uint8 (height, width, 3) array.
    """

    def augment(image: Any, n: int, rng: np.random.Generator, /) -> Tensor:
        views = [_to_tensor(make_view(image, rng), image) for _ in range(n)]
        shapes = {tuple(view.shape) for view in views}
        if len(shapes) > 1:
            raise InputError(f"augment: expected views of one shape, got {sorted(shapes)}")
        return torch.stack(views)

    whole_image = getattr(make_view, "whole_image", False)
    augment.whole_image = whole_image  # pyright: ignore[reportFunctionMemberAccess]
    return augment


def _to_tensor(view: Any, image: Any) -> Tensor:
    """Return a view as a tensor; uint8 images become (channels, height, width) in 0..1."""
    if isinstance(view, Tensor):
        return view
    if isinstance(view, Image.Image):
        is_grey = isinstance(image, np.ndarray) and image.shape[2:] == (1,)
        view = np.atleast_3d(np.asarray(view.convert("L" if is_grey else "RGB")))
    if isinstance(view, np.ndarray):
        if view.dtype == np.uint8 and view.ndim == 3:
            return torch.from_numpy(np.array(view.transpose(2, 0, 1))).float() / 255
        return torch.from_numpy(np.array(view))
    raise InputError(f"augment: expected a tensor, array or PIL image, got {type(view).__name__}")
