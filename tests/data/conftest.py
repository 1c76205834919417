import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty $MEMO_DATA."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MEMO_DATA", str(folder))
    return folder
