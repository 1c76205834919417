"""ImageNet, ImageNet-C, -R and -A: folders of images, named by WordNet id."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.folder import FolderImages, class_folders, list_images
from memo_tta.errors import DataError

IMAGENET_C = "imagenet-c"
IMAGES_PER_CLASS = 50  # in ImageNet-C, of each of the 1,000 classes, at every corruption and severity


def open_imagenet(path: Path, name: str | None = None) -> Dataset:
    """Open images of some or all ImageNet classes, to be classified among all 1,000."""
    wnids = class_list("imagenet-wnids")
    folders = _check_wnids(path, wnids, "ImageNet's 1,000 classes")
    names, targets = list_images(path, folders, wnids.index)
    return Dataset(name or path.name, FolderImages(path, names), targets, class_list("imagenet"), ids=names)


def open_imagenet_subset(path: Path, name: str) -> Dataset:
    """Open ImageNet-R or ImageNet-A, to be classified among their own 200 classes."""
    wnids = class_list(name)
    folders = _check_wnids(path, wnids, f"the 200 classes of {name}")
    names, targets = list_images(path, folders, wnids.index)
    all_wnids, all_labels = class_list("imagenet-wnids"), class_list("imagenet")
    classes = [all_wnids.index(wnid) for wnid in wnids]
    labels = [all_labels[index] for index in classes]
    return Dataset(name, FolderImages(path, names), targets, labels, ids=names, classes=classes)


def open_imagenet_c(path: Path, corruption: str, severity: int) -> Dataset:
    """Open one part of ImageNet-C, whose images are already 224 x 224."""
    folder = path / corruption / str(severity)
    if not folder.is_dir():
        how_to_get = "get it with `memo data get imagenet-c`, or make it with `memo corrupt`"
        raise DataError(f"{folder}: no such folder: {how_to_get}")
    part = open_imagenet(folder, IMAGENET_C)
    return replace(part, corruption=corruption, severity=severity, cropped=True, metric="mce")


def open_own_imagenet_c(path: Path, corruption: str, severity: int) -> Dataset:
    """Open one part of a folder in ImageNet-C's layout, which is ImageNet-C only if it is complete."""
    part = open_imagenet_c(path, corruption, severity)
    if (np.bincount(part.targets, minlength=len(part.labels)) == IMAGES_PER_CLASS).all():
        return part
    name = f"own {IMAGENET_C}" if path.name == IMAGENET_C else path.name
    return replace(part, name=name, metric="error")


def is_imagenet(path: Path) -> bool:
    """Return whether every class folder is named by a WordNet id of ImageNet."""
    return set(class_folders(path)) <= set(class_list("imagenet-wnids"))


def _check_wnids(path: Path, wnids: tuple[str, ...], classes: str) -> list[str]:
    """Return the class folders; raise if one is not named by one of these WordNet ids."""
    folders = class_folders(path)
    for folder in folders:
        if folder not in wnids:
            raise DataError(f"{path / folder}: expected a folder named by a WordNet id of {classes}")
    return folders
