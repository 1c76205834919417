"""Models from elsewhere; where a library is not installed, its tests are skipped."""

import pytest

from benchmarks import installed


@pytest.fixture(scope="session")
def torchvision():
    return installed.torchvision() or pytest.skip("torchvision is not installed")


@pytest.fixture(scope="session")
def timm(torchvision):
    return pytest.importorskip("timm")
