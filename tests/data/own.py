"""The same few pictures in every form that users keep data in."""

import csv
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, LABELS = 40, list("abcde")
COUNT = 2 * len(LABELS)
TARGETS = np.arange(COUNT) % len(LABELS)
PICTURES = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
MODEL = """
import torch
from torch import nn
import memo_tta as mt

def build():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5))
    net = nn.Sequential(*layers)
    return mt.Classifier(net, size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde"))
"""


def png(position: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PICTURES[position]).save(file, "PNG")
    return file.getvalue()


def write_images(folder: Path) -> list[str]:
    """Write one file per picture, in one folder; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{position:02}.png" for position in range(COUNT)]
    for position, name in enumerate(names):
        (folder / name).write_bytes(png(position))
    return names


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return path


def write_shard(path: Path, positions: range) -> Path:
    members = {}
    for position in positions:
        members[f"{position:02}.png"] = png(position)
        members[f"{position:02}.cls"] = LABELS[TARGETS[position]].encode()
    return write_tar(path, members)


def write_csv(path: Path, *rows: tuple[object, ...]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def as_csv(root: Path) -> str:
    names = write_images(root / "pictures")
    rows = [(f"pictures/{name}", LABELS[target]) for name, target in zip(names, TARGETS, strict=True)]
    return str(write_csv(root / "own.csv", ("Filename", "class"), *rows))


def as_parquet(root: Path) -> str:
    import pyarrow
    from pyarrow import parquet

    names = [f"pictures/{name}" for name in write_images(root / "pictures")]
    parquet.write_table(
        pyarrow.table({"path": names, "label": [LABELS[t] for t in TARGETS]}), root / "own.parquet"
    )
    return str(root / "own.parquet")


def as_tar(root: Path) -> str:
    return str(write_shard(root / "own.tar", range(COUNT)))


def as_shards(root: Path) -> str:
    for shard, start in enumerate(range(0, COUNT, 4)):
        write_shard(root / f"shards/own-{shard:03}.tar", range(start, min(start + 4, COUNT)))
    return str(root / "shards")


def hub_rows(**features: object):
    """Return the pictures as a data set of the library `datasets`."""
    import datasets

    columns = {"image": [Image.fromarray(picture) for picture in PICTURES], "label": TARGETS.tolist()}
    types = {"image": datasets.Image(), "label": datasets.ClassLabel(names=LABELS), **features}
    columns.update({name: columns["image" if "image" in name else "label"] for name in features})
    return datasets.Dataset.from_dict(columns, features=datasets.Features(types))


def as_saved(root: Path) -> str:
    hub_rows().save_to_disk(root / "saved")
    return str(root / "saved")


def as_split(root: Path) -> str:
    import datasets

    splits = datasets.DatasetDict({"train": hub_rows().select([0]), "test": hub_rows()})
    splits.save_to_disk(root / "splits")
    return f"hfds:{root / 'splits'}:test"


FORMS = {
    "csv": as_csv,
    "parquet": as_parquet,
    "tar": as_tar,
    "shards": as_shards,
    "pattern": lambda root: f"{as_shards(root)}/own-*.tar",
    "range": lambda root: f"{as_shards(root)}/own-{{000..002}}.tar",
    "saved": as_saved,
    "split": as_split,
}
