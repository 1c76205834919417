"""The user's own augmentation: `augment(input, n, rng)` gives n views, for any kind of input.

A function that makes all views at once is one already. `per_view` turns a function that makes one
view into one.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from memo_tta.errors import InputError


class Augmentation(Protocol):
    """What `augment=` takes.

    An image comes as uint8 (height, width, 3), resized and cropped to the classifier's size (or as
    loaded, if the augmentation has `whole_image = True`), and its views go out in 0..1. Any other
    input comes and goes as the tensor that the module takes.

    An augmentation that can do more has more methods; all are optional:
    - `normalised(image, n, rng, mean, std, device)`: the same views as the module takes them, made there;
    - `preview(image, n, rng)`: n views that cost little, for gates that look at a few views first;
    - `groups(n)`: a mapping from group name to number of views, in order, adding up to n.
    """

    def __call__(self, image: Any, n: int, rng: np.random.Generator, /) -> Tensor: ...


def per_view(make: Callable[[Any, np.random.Generator], Any]) -> Augmentation:
    """An augmentation from `make(input, rng)`, which gives one view.

    A view is a tensor; of an image, also a PIL image or a uint8 (height, width, 3) array.
    """

    def augment(image: Any, n: int, rng: np.random.Generator, /) -> Tensor:
        views = [as_view(make(image, rng)) for _ in range(n)]
        shapes = {tuple(view.shape) for view in views}
        if len(shapes) > 1:
            raise InputError(f"augment: views must share one shape, got {sorted(shapes)}")
        return torch.stack(views)

    augment.whole_image = getattr(make, "whole_image", False)  # pyright: ignore[reportFunctionMemberAccess]
    return augment


def as_view(view: Any) -> Tensor:
    """One view as a tensor; uint8 pictures become (3, height, width) in 0..1."""
    if isinstance(view, Tensor):
        return view
    if isinstance(view, Image.Image):
        view = np.asarray(view.convert("RGB"))
    if isinstance(view, np.ndarray):
        if view.dtype == np.uint8 and view.ndim == 3:
            return torch.from_numpy(np.array(view.transpose(2, 0, 1))).float() / 255
        return torch.from_numpy(np.array(view))
    raise InputError(f"augment: expected a tensor, array or PIL image, got {type(view).__name__}")
