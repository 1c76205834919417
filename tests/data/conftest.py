"""Fixtures for the tests of data sets."""

import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty folder that $MEMO_DATA names."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MEMO_DATA", str(folder))
    return folder
