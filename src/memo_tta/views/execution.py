"""Choose how plans are carried out on the CPU: by compiled code if numba is installed, else without it."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from torch import Tensor

from memo_tta.image import Size
from memo_tta.views.augmix_plan import AugMixPlan, CropPlan


class Execution(Protocol):
    """The functions of `execution_compiled` and of `execution_portable`, which give the same pixels."""

    NAME: str

    def padded_crops(self, image: np.ndarray, plan: CropPlan, size: Size, padding: Size) -> np.ndarray:
        """Return crops, uint8 (n, channels, height, width), of a zero-padded image, channels last."""
        ...

    def resized_crops(self, image: np.ndarray, plan: CropPlan, size: Size) -> np.ndarray:
        """Return crops, uint8 (n, channels, height, width), of a uint8 image, channels last."""
        ...

    def mix(self, plan: AugMixPlan, crops: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> Tensor:
        """Return normalised views, float32, of crops, uint8 (n, channels, height, width)."""
        ...


@cache
def cpu_execution() -> Execution:
    """Return the fastest execution that this installation has."""
    try:
        import numba  # noqa: F401  # imported with the first view: it takes a moment to load
    except (ImportError, OSError) as error:  # llvmlite raises OSError if its library cannot be loaded
        logging.getLogger("memo_tta").info("views are computed without compiled code: %s", error)
        from memo_tta.views import execution_portable

        return execution_portable
    from memo_tta.views import execution_compiled

    return execution_compiled


def execution_name() -> str:
    """Name how this installation makes views: the two ways differ in the last bits of mixed views."""
    return cpu_execution().NAME
