"""ImageNet's shifted relatives, as they are published: folders named by WordNet id."""

from dataclasses import replace
from pathlib import Path

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.folder import FileImages, class_folders, list_images
from memo_tta.errors import DataError


def open_imagenet(path: Path, name: str | None = None) -> Dataset:
    """Some or all of ImageNet's 1,000 classes, predicted among all of them."""
    wnids = class_list("imagenet-wnids")
    folders = _known(path, wnids, "ImageNet's 1,000 classes")
    names, y = list_images(path, folders, wnids.index)
    return Dataset(name or path.name, FileImages(path, names), y, class_list("imagenet"), ids=names)


def open_imagenet_part(path: Path, name: str) -> Dataset:
    """ImageNet-R or ImageNet-A: predicted among the 200 classes that the set is made of."""
    wnids = class_list(name)
    names, y = list_images(path, _known(path, wnids, f"the 200 classes of {name}"), wnids.index)
    everything, labels = class_list("imagenet-wnids"), class_list("imagenet")
    classes = [everything.index(wnid) for wnid in wnids]
    return Dataset(
        name, FileImages(path, names), y, [labels[index] for index in classes], ids=names, classes=classes
    )


def open_imagenet_c(path: Path, corruption: str, severity: int) -> Dataset:
    """One part of ImageNet-C, whose images are 224 pixels wide and high already."""
    folder = path / corruption / str(severity)
    if not folder.is_dir():
        get = "get it with `memo data get imagenet-c`, or make it with `memo corrupt`"
        raise DataError(f"{folder}: no such folder: {get}")
    part = open_imagenet(folder, "imagenet-c")
    return replace(part, corruption=corruption, severity=severity, cropped=True, metric="mce")


def is_imagenet(path: Path) -> bool:
    """Whether all of the folder's classes are named by WordNet id."""
    return set(class_folders(path)) <= set(class_list("imagenet-wnids"))


def _known(path: Path, wnids: tuple[str, ...], among: str) -> list[str]:
    folders = class_folders(path)
    for folder in folders:
        if folder not in wnids:
            raise DataError(f"{path / folder}: the folder's name is no WordNet id of {among}")
    return folders
