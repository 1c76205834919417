"""Data sets by name and by path, and corruption on the fly."""

import numpy as np
import pytest
from PIL import Image

from memo_tta.class_lists import class_list
from memo_tta.data.catalog import CATALOG, load_dataset, load_parts
from memo_tta.data.corruptions import corrupt
from memo_tta.errors import ConfigError, DataError, UnknownName
from memo_tta.seeding import sample_rng
from tests.data.published import save_folder
from tests.nets import pictures

pytestmark = pytest.mark.usefixtures("data")


def test_names_that_mean_nothing(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'cifar10-c'"):
        load_dataset("cifar10c")
    with pytest.raises(DataError, match=r"cifar10-c: not found in .*: get it with `memo data get cifar10-c`"):
        load_dataset("cifar10-c+fog:1")
    with pytest.raises(DataError, match="no such file or folder, and not the name of a data set"):
        load_dataset(str(tmp_path / "nothing"))
    with pytest.raises(UnknownName, match=r"unknown corruption 'fogg': .*did you mean 'fog'"):
        load_dataset("sample+fogg:1")
    for level, message in (
        ("6", r"expected 1\.\.5, got 6"),
        ("x", r"expected a severity 1\.\.5 after the colon"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset(f"sample+fog:{level}")
    with pytest.raises(ConfigError, match=r"sample\+fog: already names a corruption: remove \+fog"):
        load_parts("sample+fog", severities=[1])


def test_a_path_may_be_a_path_or_text(tmp_path):
    folder = tmp_path / "own"
    (folder / "a").mkdir(parents=True)
    Image.fromarray(pictures(1)[0]).save(folder / "a/x.png")
    by_path, by_text = load_dataset(folder), load_dataset(str(folder))
    assert by_path.name == by_text.name and by_path.labels == by_text.labels == ["a"]
    np.testing.assert_array_equal(by_path[0].image, by_text[0].image)


def test_on_the_fly_corruption_depends_on_seed_and_id_alone():
    clean, noisy = load_dataset("sample"), load_dataset("sample+shot_noise:4")
    assert (noisy.corruption, noisy.severity, len(noisy)) == ("shot_noise", 4, 500)
    position = 123
    expected = corrupt(clean[position].image, "shot_noise", 4, sample_rng(0, f"shot_noise 4 {position}"))
    np.testing.assert_array_equal(noisy[position].image, expected)
    np.testing.assert_array_equal(noisy.take([7, position])[1].image, expected)
    chosen = load_parts("sample", ["shot_noise"], [4])[0]
    np.testing.assert_array_equal(chosen[position].image, expected)
    assert not np.array_equal(load_dataset("sample+shot_noise:4", seed=1)[position].image, expected)


def test_large_images_are_cropped_as_imagenet_c_was_before_they_are_corrupted(tmp_path):
    (tmp_path / "own/a").mkdir(parents=True)
    picture = Image.fromarray(pictures(1)[0]).resize((400, 300))
    picture.save(tmp_path / "own/a/x.png")
    dataset = load_dataset(f"{tmp_path / 'own'}+contrast:5")
    assert dataset.cropped and dataset[0].image.shape == (224, 224, 3)
    small = picture.resize((341, 256), Image.Resampling.BILINEAR)
    crop = np.asarray(small.crop((58, 16, 282, 240)))
    expected = corrupt(crop, "contrast", 5, np.random.default_rng(0))  # contrast draws nothing
    np.testing.assert_array_equal(dataset[0].image, expected)


def test_datasets_are_listed_with_their_state(memo, data):
    save_folder(data / "imagenet-r", [f"{class_list('imagenet-wnids')[1]}/1.jpg"])
    code, out, _ = memo("datasets")
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert code == 0 and set(CATALOG) <= set(rows) and "frost" in rows
    assert (
        " yes " in rows["imagenet-r"]
        and " no " in rows["imagenet-a"]
        and "memo data get" in rows["cifar10-c"]
    )
