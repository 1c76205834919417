"""Weights files that are damaged or made to hurt: refused in one line, or loaded exactly."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from memo_tta.errors import CheckpointError
from memo_tta.models.checkpoint import load_weights
from tests.conftest import times
from tests.data.damage import (
    BOMB,
    MIB,
    bomb_entry,
    damaged,
    deflated_zeros,
    gzipped_zeros,
    run_in_child,
    watched,
    write_zip,
)
from tests.models.checkpoints import Net, assert_equal, copied, save_legacy, save_npz

WIDTH, CLASSES = 64, 100
SEED = 7


def network() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net(WIDTH, CLASSES)


def save_compressed(state, path):
    np.savez_compressed(path, **{name: value.numpy() for name, value in state.items()})


# Zip files have a checksum for every member. The others have none for the values of their tensors: a flipped
# bit there gives another number, which is noticed only where it is not finite, or a negative variance. In a
# legacy .pth file, it may also exchange two tensors of one shape.
SAVERS = {"npz": save_npz, "compressed.npz": save_compressed, "pth": torch.save}
WITHOUT_CHECKSUM = {"safetensors": save_file, "legacy.pth": save_legacy}


class MakesFolder:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def loaded_or_refused(path: Path, reference: dict[str, torch.Tensor] | None) -> str:
    """Load a file, and check what is loaded or left; return the line that refuses it, or an empty string."""
    module = Net(WIDTH, CLASSES)
    before = copied(module)
    try:
        load_weights(module, path)
    except CheckpointError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
        assert_equal(module.state_dict(), before)
        return str(error)
    state = module.state_dict()
    if reference is not None:
        assert_equal(state, reference)
    assert all(value.isfinite().all() for value in state.values()) and (state["norm.running_var"] >= 0).all()
    return ""


def check_random(case: str) -> None:
    """Damage a file of one format; `case` is FORMAT NUMBER FOLDER."""
    format_name, number, folder = case.split()
    path = Path(folder) / f"weights.{format_name}"
    state = network().state_dict()
    ({**SAVERS, **WITHOUT_CHECKSUM})[format_name](state, path)
    rng = np.random.default_rng([SEED, int(number)])
    path.write_bytes(damaged(path.read_bytes(), rng))
    loaded_or_refused(path, state if format_name in SAVERS else None)


# Files made to hurt


def npy(shape: str = "(4,)", descr: str = "'<f4'", content: bytes = bytes(16)) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def npz_of(content: bytes, **changes: int) -> Callable[[Path], object]:
    return lambda path: write_zip(path, {"conv.weight.npy": content}, **changes)


def npz_bomb(header: bytes, megabytes: int = BOMB, **changes: int) -> Callable[[Path], object]:
    entry = {**bomb_entry(header, megabytes), **changes}
    return lambda path: write_zip(path, {"a.npy": deflated_zeros(header, megabytes)}, **entry)


def twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy())
        archive.writestr("a.npy", npy())


def compressed_by(method: int) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as archive, archive.open("a.npy", "w") as member:
            member.write(npy(f"({20 * MIB // 4},)", content=b""))
            for _ in range(20):
                member.write(bytes(MIB))

    return write


def pth_of(pickled: bytes, **changes: int) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        torch.save(network().state_dict(), path)
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        (name,) = (name for name in files if name.endswith("data.pkl"))
        del files[name]
        write_zip(path, {**files, name: pickled}, **changes)

    return write


def pth_bomb(megabytes: int) -> Callable[[Path], object]:
    """Write a file whose first tensor would unpack to much."""

    def write(path: Path) -> None:
        torch.save({"a": torch.zeros(1)}, path)
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        (name,) = (name for name in files if name.endswith("data/0"))
        del files[name]
        (pickled,) = (name for name in files if name.endswith("data.pkl"))
        count = struct.pack("<i", megabytes * MIB // 4)
        files[pickled] = files[pickled].replace(b"K\x01tq", b"J" + count + b"tq")
        write_zip(path, {**files, name: deflated_zeros(b"", megabytes)}, **bomb_entry(b"", megabytes))

    return write


def pickle_of(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def legacy_of(content: bytes) -> Callable[[Path], object]:
    """Write the magic number and the version of torch's old format, and then these bytes."""
    start = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
    return pickle_of(start + content)


def safetensors_of(
    header: bytes, length: int | None = None, content: bytes = bytes(16)
) -> Callable[[Path], object]:
    return pickle_of(struct.pack("<Q", len(header) if length is None else length) + header + content)


def loop(path: Path) -> None:
    path.symlink_to(path)


def strange(tensor: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: torch.save({**network().state_dict(), "head.bias": tensor}, path)


def overlapping(path: Path) -> None:
    """Write a zip file whose members share their bytes, so that they are much larger than the file."""
    content = npy(f"({30 * MIB // 4},)", content=bytes(30 * MIB))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a0.npy", content)
        for number in range(1, 40):
            entry = zipfile.ZipInfo(f"a{number}.npy")
            first = archive.infolist()[0]
            for field in ("header_offset", "CRC", "file_size", "compress_size", "flag_bits"):
                setattr(entry, field, getattr(first, field))
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry


def greedy(call: bytes, argument: bytes) -> bytes:
    """Return a pickle that calls a function 1,000 times with one argument, and keeps the results."""
    return b"\x80\x02(c" + call + b"\nq\x01" + argument + b"\x85q\x02" + b"h\x01h\x02R" * 1000 + b"t."


LONG_TEXT = b"X" + struct.pack("<I", MIB) + b"x" * MIB

HOSTILE: dict[str, Callable[[Path], object]] = {
    "honest-bomb.npz": npz_bomb(npy(f"({1500 * MIB // 4},)", content=b"")),
    "small-bomb.npz": npz_bomb(npy(f"({190 * MIB // 4},)", content=b""), megabytes=190),
    "lying-header.npz": npz_bomb(npy(content=b"")),
    "lying-size.npz": npz_bomb(npy(content=b""), file_size=len(npy())),
    "lying-shape.npz": npz_of(npy("(10000000000,)")),
    "negative.npz": npz_of(npy("(-4,)")),
    "negative-twice.npz": npz_of(npy("(-2, -2)")),
    "overflow.npz": npz_of(npy(f"({2**62}, {2**62}, 4)")),
    "nothing-times-much.npz": npz_of(npy(f"(0, {2**70})", content=b"")),
    "many-dimensions.npz": npz_of(npy("(" + "1," * 100 + ")", content=bytes(4))),
    "long-header.npz": npz_of(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 1000),
    "deep-header.npz": npz_of(npy("-" * 900 + "1")),
    "deeper-header.npz": npz_of(npy("-" * 20000 + "1")),
    "brackets.npz": npz_of(npy("(" * 300 + ")" * 300)),
    "wide-type.npz": npz_of(npy("(1,)", "'V2147483647'")),
    "wide-rows.npz": npz_of(npy("(1,)", "[('a', '<f4', (100000, 100000))]")),
    "objects.npz": npz_of(npy("(1,)", "'|O'", pickle.dumps([None]))),
    "no-array.npz": npz_of(b"hello"),
    "encrypted.npz": npz_of(npy(), flag_bits=1),
    "unknown-method.npz": npz_of(npy(), compress_type=99),
    "bzip2.npz": compressed_by(zipfile.ZIP_BZIP2),
    "lzma.npz": compressed_by(zipfile.ZIP_LZMA),
    "wrong-checksum.npz": npz_of(npy(), CRC=1),
    "far-offset.npz": npz_of(npy(), header_offset=2**31),
    "twice.npz": twice,
    "overlapping.npz": overlapping,
    "tensor-bomb.pth": pth_bomb(1500),
    "small-tensor-bomb.pth": pth_bomb(190),
    "pickle-bomb.pth": pth_of(deflated_zeros(), **bomb_entry()),
    "many-lists.pth": pth_of(b"\x80\x02" + b"]" * (8 * MIB) + b"."),
    "deep.pth": pth_of(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "bytearrays.pth": pth_of(greedy(b"builtins\nbytearray", b"J" + struct.pack("<i", MIB * 1000))),
    "encodings.pth": pth_of(greedy(b"_codecs\nencode", LONG_TEXT)),
    "memo.pth": pth_of(b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"."),
    "encrypted.pth": pth_of(b"\x80\x02}.", flag_bits=1),
    "unknown-method.pth": pth_of(b"\x80\x02}.", compress_type=12),
    "wrong-checksum.pth": pth_of(b"\x80\x02}.", CRC=1),
    "overlapping.pth": overlapping,
    "many-lists-legacy.pth": legacy_of(b"\x80\x02" + b"]" * (8 * MIB) + b"."),
    "bytearrays-damaged.pth": legacy_of(
        greedy(b"builtins\nbytearray", b"J" + struct.pack("<i", MIB * 1000))[:-1] + b"\xff"
    ),
    "bytearrays-legacy.pth": legacy_of(greedy(b"builtins\nbytearray", b"J" + struct.pack("<i", MIB * 1000))),
    "lists.pth": pickle_of(b"\x80\x02" + b"]" * (8 * MIB)),
    "gzipped.pth": pickle_of(gzipped_zeros(b"\x80\x02")),
    "sparse.pth": strange(torch.zeros(CLASSES).to_sparse()),
    "meta.pth": strange(torch.zeros(CLASSES, device="meta")),
    "complex.pth": strange(torch.zeros(CLASSES, dtype=torch.complex64)),
    "much.pth": strange(torch.zeros(1).expand(10**12)),
    "long-header.safetensors": safetensors_of(b"{}", 2**63),
    "nested.safetensors": safetensors_of(b"[" * MIB),
    "lists.safetensors": safetensors_of(b'{"a":' + b"[" * 8 * MIB),
    "overlap.safetensors": safetensors_of(
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
        b'"b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    ),
    "overflow.safetensors": safetensors_of(
        b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}'
    ),
    **{f"loop{suffix}": loop for suffix in (".npz", ".pth", ".safetensors")},
    **{f"pipe{suffix}": os.mkfifo for suffix in (".npz", ".pth", ".safetensors")},
    **{f"folder{suffix}": Path.mkdir for suffix in (".npz", ".pth", ".safetensors")},
}


# Why the files are refused that something else would refuse later, or less surely.
REASONS = {
    "twice.npz": "two members have the same name",
    **dict.fromkeys(
        ("encrypted.npz", "bzip2.npz", "lzma.npz", "unknown-method.pth"), "compressed by another method"
    ),
    "overlapping.npz": "that unpack to",
    "lists.safetensors": "its header has 8388613 bytes, expected at most",
    "lists.pth": "its pickles have more than",
}


def check_hostile(case: str) -> None:
    name, folder = case.split()
    HOSTILE[name](Path(folder) / name)
    message = loaded_or_refused(Path(folder) / name, None)
    assert message and REASONS.get(name, "") in message, message


def check_code(case: str) -> None:
    """A file that would make a folder when it is run as code is refused, damaged or not."""
    number, folder = case.split()
    marker, path = Path(folder) / "ran", Path(folder) / "code.pth"
    rng = np.random.default_rng([SEED, int(number)])
    content = {**network().state_dict(), "epoch": MakesFolder(marker)}
    (save_legacy if int(number) % 2 else torch.save)(content, path)
    if int(number) > 1:
        path.write_bytes(damaged(path.read_bytes(), rng))
    loaded_or_refused(path, network().state_dict() if int(number) % 2 == 0 else None)
    assert not marker.exists()


def main(count: str, folder: str) -> None:
    """Check `count` random files and all hostile ones, in a process of their own."""
    formats = [*SAVERS, *WITHOUT_CHECKSUM]
    torch.load(io.BytesIO(pth_bytes()), weights_only=True)  # what is imported on first use
    loaded_or_refused(Path(folder) / "none.npz", None)
    watched(check_random, [f"{formats[i % len(formats)]} {i} {folder}" for i in range(int(count))])
    watched(check_code, [f"{i} {folder}" for i in range(int(count) // 4)])
    watched(check_hostile, [f"{name} {folder}" for name in HOSTILE])


def pth_bytes() -> bytes:
    content = io.BytesIO()
    torch.save(network().state_dict(), content)
    return content.getvalue()


def test_damaged_weights_are_refused_or_loaded_exactly(tmp_path):
    run_in_child(__name__, times(40, 500), tmp_path)
