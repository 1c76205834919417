"""Models from elsewhere; where a library is not installed, its tests are skipped."""

import pytest
import torch


@pytest.fixture(scope="session")
def torchvision():
    """torchvision, also beside a build of torch that its compiled operators do not fit."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    library.define("qnms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    try:
        yield pytest.importorskip("torchvision")
    finally:
        del library


@pytest.fixture(scope="session")
def timm(torchvision):
    return pytest.importorskip("timm")
