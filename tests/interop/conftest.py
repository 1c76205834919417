"""Fixtures for other libraries; tests are skipped if the library is not installed."""

import pytest

from memo_tta.bench import torchvision_import


@pytest.fixture(scope="session")
def torchvision():
    return torchvision_import.import_torchvision() or pytest.skip("torchvision is not installed")


@pytest.fixture(scope="session")
def timm(torchvision):
    return pytest.importorskip("timm")
