"""Data sets in folders of images, in the published layouts."""

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.class_lists import class_list
from memo_tta.data.catalog import load_dataset
from memo_tta.data.formats import imagenet
from memo_tta.data.formats.folder import FileImages
from memo_tta.errors import DataError, InputError
from memo_tta.evaluation.class_matching import match_classes
from tests.data.published import save_folder

WNIDS = class_list("imagenet-wnids")

pytestmark = pytest.mark.usefixtures("data")


def test_imagenet_c_is_read_file_by_file_and_not_resized(data):
    files = save_folder(data / "imagenet-c/snow/3", [f"{WNIDS[7]}/b.JPEG", f"{WNIDS[2]}/a.JPEG"], side=224)
    part = load_dataset("imagenet-c+snow:3")
    assert isinstance(part.images, FileImages) and part.metric == "mce" and part.classes is None
    assert [(s.id, s.target) for s in part] == [(f"{WNIDS[2]}/a.JPEG", 2), (f"{WNIDS[7]}/b.JPEG", 7)]
    assert part.labels[7] == "cock"
    for sample in part:
        np.testing.assert_array_equal(sample.image, files[str(sample.id)])
    classifier = mt.Classifier(nn.Identity(), size=224, resize=256, mean=[0.5] * 3, std=[0.5] * 3)
    np.testing.assert_array_equal(
        match_classes(classifier, part)[0].point(part[0].image).fitted, part[0].image
    )
    assert not np.array_equal(classifier.point(part[0].image).fitted, part[0].image)


@pytest.mark.parametrize("letter", ["r", "a"])
def test_the_subsets_are_the_published_ones(golden, letter):
    published = golden.json(f"constants/imagenet_{letter}_wnids")
    wnids = class_list(f"imagenet-{letter}")
    assert list(wnids) == published["wnids"]
    assert [WNIDS.index(wnid) for wnid in wnids] == published["indices_in_1k"]
    everything = golden.json("constants/imagenet_wnids")
    assert list(WNIDS) == [row["wnid"] for row in everything]


class PrefersOneOutside(nn.Module):
    """Logits that prefer a class outside the subset, then one inside it."""

    def __init__(self, outside, inside):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1000))
        with torch.no_grad():
            self.weight[outside], self.weight[inside] = 2.0, 1.0

    def forward(self, x):
        return x.mean(dim=(1, 2, 3))[:, None] * 0 + self.weight


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a"])
def test_accuracy_is_counted_within_the_subset(data, name):
    wnids = class_list(name)
    save_folder(data / name, [f"{wnids[1]}/{place}.jpg" for place in range(3)])
    dataset = load_dataset(name)
    assert dataset.classes is not None
    assert len(dataset.labels) == len(dataset.classes) == 200 and dataset.targets.tolist() == [1, 1, 1]
    outside = min(set(range(1000)) - set(dataset.classes))
    whole = mt.Classifier(
        PrefersOneOutside(outside, dataset.classes[1]),
        size=32,
        mean=[0.5] * 3,
        std=[0.5] * 3,
        labels=class_list("imagenet"),
    )

    def right(classifier):
        source = mt.methods.METHODS["source"](classifier)
        return [source.predict(image).index == target for _, image, target in dataset]

    assert right(match_classes(whole, dataset)[0]) == [True] * 3 and right(whole) == [False] * 3


def test_a_folder_of_ones_own(tmp_path):
    files = save_folder(tmp_path / "own", ["dog/2.png", "dog/1.png", "cat/x.png"])
    (tmp_path / "own/dog/notes.txt").write_text("not an image")
    (tmp_path / "own/.cache").mkdir()
    dataset = load_dataset(str(tmp_path / "own"))
    assert dataset.labels == ["cat", "dog"] and [s.id for s in dataset] == [
        "cat/x.png",
        "dog/1.png",
        "dog/2.png",
    ]
    assert dataset.targets.tolist() == [0, 1, 1] and dataset.name == "own"
    for sample in dataset.take([2, 0]):
        np.testing.assert_array_equal(sample.image, files[str(sample.id)])


def test_a_folder_named_by_wordnet_ids_keeps_all_classes(tmp_path):
    save_folder(tmp_path / "val", [f"{WNIDS[999]}/a.png"])
    dataset = load_dataset(str(tmp_path / "val"))
    assert dataset[0].target == 999 and len(dataset.labels) == 1000 and dataset.classes is None


def test_bad_folders_name_the_folder(data, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: expected one sub-folder per class, found none"):
        load_dataset(str(tmp_path / "empty"))
    save_folder(tmp_path / "own", ["a/1.png"])
    (tmp_path / "own/b").mkdir()
    with pytest.raises(DataError, match="b: the class has no images"):
        load_dataset(str(tmp_path / "own"))
    save_folder(data / "imagenet-r", ["dog/1.jpg"])
    with pytest.raises(
        DataError, match="dog: expected a folder named by a WordNet id of the 200 classes of imagenet-r"
    ):
        load_dataset("imagenet-r")
    other = next(wnid for wnid in WNIDS if wnid not in class_list("imagenet-a"))
    save_folder(data / "imagenet-a", [f"{other}/1.jpg"])
    with pytest.raises(DataError, match=f"{other}: expected a folder named by a WordNet id of the 200"):
        load_dataset("imagenet-a")
    with pytest.raises(
        DataError, match=r"imagenet-c/fog/1: no such folder: get it with `memo data get imagenet-c`"
    ):
        (data / "imagenet-c").mkdir()
        load_dataset("imagenet-c+fog:1")


def test_classes_named_after_weather_are_no_corruptions(tmp_path):
    save_folder(tmp_path / "sky", ["fog/1.png", "snow/1.png", "frost/1.png"])
    dataset = load_dataset(str(tmp_path / "sky"))
    assert dataset.labels == ["fog", "frost", "snow"] and not dataset.corruption


@pytest.mark.parametrize(("images", "name", "metric"), [(1, "mine", "error"), (2, "imagenet-c", "mce")])
def test_own_corrupted_images_are_imagenet_c_only_if_all_are_there(
    tmp_path, monkeypatch, images, name, metric
):
    assert imagenet.IMAGES_PER_CLASS == 50
    monkeypatch.setattr(imagenet, "IMAGES_PER_CLASS", 2)
    for wnid in WNIDS:
        folder = tmp_path / "mine/fog/1" / wnid
        folder.mkdir(parents=True)
        for number in range(images if wnid == WNIDS[-1] else 2):
            (folder / f"{number}.JPEG").touch()
    part = load_dataset(f"{tmp_path / 'mine'}+fog:1")
    assert (part.name, part.metric, part.cropped, part.labels) == (name, metric, True, class_list("imagenet"))


def test_own_images_in_a_folder_named_imagenet_c_have_another_name(tmp_path):
    save_folder(tmp_path / "imagenet-c/fog/1", [f"{WNIDS[0]}/1.JPEG"])
    assert load_dataset(f"{tmp_path / 'imagenet-c'}+fog:1").name == "own imagenet-c"


def test_an_unreadable_image_names_itself(tmp_path):
    save_folder(tmp_path / "own", ["a/1.png"])
    (tmp_path / "own/a/2.png").write_bytes(b"no picture")
    dataset = load_dataset(str(tmp_path / "own"))
    assert dataset[0].image.shape == (40, 40, 3)
    with pytest.raises(InputError, match=r"2\.png: not an image"):
        _ = dataset[1]
