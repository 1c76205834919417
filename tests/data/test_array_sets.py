"""Data sets in array files of the published formats."""

import io
import zipfile

import numpy as np
import pytest

import memo_tta as mt
from memo_tta.data import catalog
from memo_tta.data.catalog import CATALOG, load_dataset, load_parts
from memo_tta.data.formats import cifar
from memo_tta.errors import ConfigError, DataError
from tests.data.published import RNG, images, save_cifar101

pytestmark = pytest.mark.usefixtures("data")


@pytest.mark.parametrize(
    ("name", "version", "rows"), [("cifar10.1", "v6", 2000), ("cifar10.1-v4", "v4", 2021)]
)
def test_cifar101_in_both_versions(data, name, version, rows):
    x, y = save_cifar101(data / "cifar10.1", version, rows)
    dataset = mt.load_dataset(name)
    assert isinstance(dataset.images, np.memmap) and len(dataset) == rows
    sample = dataset[rows - 1]
    assert sample.id == rows - 1 and sample.target == y[-1] and dataset.labels[sample.target]
    np.testing.assert_array_equal(sample.image, x[-1])


def test_cifar10c_has_its_levels_one_after_the_other(data, monkeypatch):
    rows = 6
    monkeypatch.setitem(
        CATALOG, "cifar10-c", catalog.CatalogEntry("", "cifar10-c", open_part=cifar.open_cifar10c)
    )
    folder = data / "cifar10-c"
    folder.mkdir()
    fog, y = images(5 * rows), np.tile(RNG.integers(0, 10, rows), 5).astype(np.uint8)
    np.save(folder / "fog.npy", fog)
    np.save(folder / "labels.npy", y)
    for level in range(1, 6):
        part = load_dataset(f"cifar10-c+fog:{level}")
        assert (part.corruption, part.severity, len(part)) == ("fog", level, rows)
        np.testing.assert_array_equal(
            np.stack([s.image for s in part]), fog[(level - 1) * rows : level * rows]
        )
        assert part.targets.tolist() == y[:rows].tolist()
    assert [(p.corruption, p.severity) for p in load_parts("cifar10-c", ["fog"], [5, 3])] == [
        ("fog", 5),
        ("fog", 3),
    ]
    assert len(load_parts("cifar10-c+fog")) == 5
    with pytest.raises(
        DataError, match=r"gaussian_noise\.npy: no such file: get it with `memo data get cifar10-c`"
    ):
        load_parts("cifar10-c")
    with pytest.raises(ConfigError, match=r"expected one part, got 5: name one, like cifar10-c\+fog:5"):
        load_dataset("cifar10-c+fog")


def test_the_published_cifar10c_has_fifty_thousand_rows(data):
    (data / "cifar10-c").mkdir()
    np.save(data / "cifar10-c/fog.npy", images(5))
    np.save(data / "cifar10-c/labels.npy", np.zeros(5, np.int64))
    with pytest.raises(
        DataError, match=r"expected uint8 of shape \(50000, n, n, 3\), found uint8 of shape \(5, 32"
    ):
        load_dataset("cifar10-c+fog:1")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_is_mapped_not_read(tmp_path, save):
    x, y = images(7, 20), RNG.integers(0, 4, 7)
    y[0] = 3
    save(tmp_path / "own.npz", x=x, y=y)
    dataset = load_dataset(str(tmp_path / "own.npz"))
    assert isinstance(dataset.images, np.memmap) and dataset.labels == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(dataset.images, x)
    assert dataset.targets.tolist() == y.tolist() and dataset.name == "own"


def with_array(tmp_path, **arrays):
    np.savez(tmp_path / "bad.npz", **arrays)
    return str(tmp_path / "bad.npz")


def test_bad_arrays_say_what_was_expected_and_found(tmp_path):
    x, y = images(3), np.arange(3)
    for arrays, message in (
        ({"x": x}, "expected arrays x and y, found no y"),
        (
            {"x": x / 255, "y": y},
            r"expected uint8 of shape \(n, n, n, 3\), found float64 of shape \(3, 32, 32, 3\)",
        ),
        ({"x": x.transpose(0, 3, 1, 2), "y": y}, r"found uint8 of shape \(3, 3, 32, 32\)"),
        ({"x": x[:0], "y": y[:0]}, r"found uint8 of shape \(0, 32, 32, 3\)"),
        ({"x": x, "y": y[:2]}, r"expected 3 integer labels, found int64 of shape \(2,\)"),
        ({"x": x, "y": y / 2}, "expected 3 integer labels, found float64"),
        ({"x": x, "y": y - 1}, r"expected labels 0\.\.1, found -1\.\.1"),
        ({"x": x, "y": np.array([None] * 3)}, "expected numbers, found Python objects"),
    ):
        with pytest.raises(DataError, match=message):
            load_dataset(with_array(tmp_path, **arrays))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        load_dataset(str(tmp_path / "text.npz"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", b"hello")
        file.writestr("y.npy", b"hello")
    (tmp_path / "odd.npz").write_bytes(archive.getvalue())
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        load_dataset(str(tmp_path / "odd.npz"))


def test_bad_published_files_say_what_was_expected_and_found(data):
    save_cifar101(data / "cifar10.1", "v6", 1999)
    with pytest.raises(
        DataError, match=r"v6_data\.npy: expected uint8 of shape \(2000, 32, 32, 3\), found .*\(1999"
    ):
        load_dataset("cifar10.1")
    with pytest.raises(
        DataError, match=r"v4_data\.npy: no such file: get it with `memo data get cifar10\.1`"
    ):
        load_dataset("cifar10.1-v4")
    (data / "cifar10.1/cifar10.1_v6_data.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"not a complete \.npy file"):
        load_dataset("cifar10.1")
