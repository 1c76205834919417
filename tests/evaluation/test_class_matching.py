"""The classes of a data set become those of the model: by name, WordNet id, index or order, or not at all."""

import numpy as np
import pytest
from torch import nn

import memo_tta as mt
from memo_tta.class_lists import class_list
from memo_tta.data.catalog import load_dataset
from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError
from memo_tta.evaluation.class_matching import describe_match, match_classes
from tests.data.published import save_folder

WNIDS, WORDS = class_list("imagenet-wnids"), class_list("imagenet")
IMAGENETTE = [0, 217, 482, 491, 497, 566, 569, 571, 574, 701]
NETTE_IDS, NETTE_WORDS = ([names[index] for index in IMAGENETTE] for names in (WNIDS, WORDS))
# As many models of the hub have them: a class has several names, and two classes share one.
SYNONYMS = ["tench, Tinca tinca", *WORDS[1:134], "crane", *WORDS[135:]]


def classifier(labels):
    return mt.Classifier(nn.Identity(), size=8, mean=[0.5] * 3, std=[0.5] * 3, labels=labels)


def dataset(labels, targets=None, name="own"):
    targets = np.arange(len(labels)) if targets is None else np.array(targets)
    return Dataset(name, np.zeros((len(targets), 8, 8, 3), np.uint8), targets, labels)


def folders(tmp_path, names, each=1):
    save_folder(tmp_path / "own", [f"{name}/{n}.png" for name in names for n in range(each)], side=8)
    return load_dataset(str(tmp_path / "own"))


def matched(data, labels):
    """Return the model's class of each sample, and the line that says how."""
    model = classifier(labels)
    result = match_classes(model, data)[1]
    assert result.labels == (model.labels or result.labels) and len(result) == len(data)
    return result.targets.tolist(), describe_match(model, data)


@pytest.mark.parametrize(
    ("labels", "names", "expected", "how"),
    [
        (["b", "a"], ["a", "b", "c"], [1, 0], "by name"),
        (["Great_White-Shark", "TENCH"], ["tench", "great white shark"], [1, 0], "by name without case"),
        (["goldfish", "Tinca tinca"], SYNONYMS, [1, 0], "by synonym or WordNet id"),
        ([WNIDS[1], WNIDS[0]], ["tench", "goldfish", "other"], [1, 0], "by synonym or WordNet id"),
        (["tench", "goldfish"], [WNIDS[1], WNIDS[0]], [1, 0], "by synonym or WordNet id"),
        (["10", "2", "0"], list("abcdefghijkl"), [10, 2, 0], "by index"),
        (["01", "00"], ["LABEL_0", "LABEL_1"], [1, 0], "by index"),
        (["chien", "chat"], ["dog", "cat"], [0, 1], "in their order, as no name is the same: check that"),
        (["b", "a"], None, [0, 1], "in their order, as the model has no class names"),
        (["10", "2", "0"], None, [10, 2, 0], "by index"),
    ],
)
def test_classes_are_matched_and_the_line_says_how(labels, names, expected, how):
    targets, line = matched(dataset(labels), names)
    assert targets == expected and f"matched with the model's {how}" in line and "\n" not in line


def test_an_exact_name_comes_before_a_synonym():
    assert matched(dataset(["missile"]), ["projectile, missile", "missile"])[0] == [1]


@pytest.mark.parametrize(
    "names",
    [
        NETTE_IDS,
        NETTE_WORDS,
        [word.upper().replace(" ", "_") for word in NETTE_WORDS],
        [f"{word}, {number}" for number, word in enumerate(NETTE_WORDS)],
    ],
    ids=["ids", "words", "other case", "synonyms"],
)
def test_folders_of_wordnet_ids_suit_a_model_of_fewer_classes(names, tmp_path):
    order = np.random.default_rng(0).permutation(10)
    data = folders(tmp_path, NETTE_IDS, each=2)
    targets, line = matched(data, [names[place] for place in order])
    assert [order[target] for target in targets] == [place for place in range(10) for _ in range(2)]
    assert line.startswith("own: 20 images of 10 classes (2 each), matched with the model's by ")


def test_folders_of_wordnet_ids_suit_a_model_without_names_of_its_own(tmp_path):
    data = folders(tmp_path, NETTE_IDS)
    targets, line = matched(data, [f"LABEL_{index}" for index in range(10)])
    assert targets == list(range(10)) and line.endswith("in the order of their WordNet ids")


@pytest.mark.parametrize("names", [WORDS, SYNONYMS, WNIDS], ids=["words", "synonyms", "ids"])
def test_folders_of_wordnet_ids_keep_imagenets_indices(names, tmp_path):
    chosen = [0, 134, 517, 999]  # two of which are called crane
    assert matched(folders(tmp_path, [WNIDS[index] for index in chosen]), list(names))[0] == chosen


def test_imagenet_in_another_order_is_matched_by_name(tmp_path):
    data = folders(tmp_path, [WNIDS[0], WNIDS[999]])
    assert matched(data, list(reversed(WORDS)))[0] == [999, 0]


def test_classes_without_images_need_no_match():
    assert matched(dataset(["x", "b", "a"], targets=[1, 2, 2]), ["a", "b"])[0] == [1, 0, 0]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (
            ["crane", "tench"],
            ["crane", "crane", "tench"],
            r"'crane' could be any .*'crane' \(0\), 'crane' \(1\)",
        ),
        (["missile"], ["projectile, missile", "Missile, rocket"], "could be any of the model's 'project"),
        (["Tench", "tench"], ["tench", "eel"], "'Tench' and 'tench' are both the model's 'tench'"),
        ([WNIDS[0], "tench"], ["tench", "eel"], f"'{WNIDS[0]}' and 'tench' are both the model's 'tench'"),
        (["cat", "dog"], ["dog", "eel"], "has 2 classes, the model 2, and 'cat' is not among the model's"),
        (list("pqrstu"), ["a", "b"], "and 'p', 'q', 'r' and 3 more are not among the model's: .* index"),
        (["0", "1", "7"], ["a", "b", "c", "d"], "has 3 classes, the model 4, and '7' is not among"),
    ],
)
def test_what_is_ambiguous_or_unknown_is_refused(labels, names, message):
    with pytest.raises(ConfigError, match=f"^own: .*{message}"):
        match_classes(classifier(names), dataset(labels))


def test_imagenet_folders_are_not_forced_on_other_classes(tmp_path):
    message = (
        "has 10 classes, the model 10, and 'tench', 'English springer', 'cassette player' and 7 more are not"
    )
    with pytest.raises(ConfigError, match=f"own: {message}"):
        match_classes(classifier(class_list("cifar10")), folders(tmp_path, NETTE_IDS))


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({"a": 3, "b": 1}, "4 images of 2 classes (a 3, b 1)"),
        (dict.fromkeys("abcdef", 2), "12 images of 6 classes (2 each)"),
        ({**dict.fromkeys("abcde", 2), "f": 9}, "19 images of 6 classes (2 to 9 each)"),
    ],
)
def test_the_line_counts_images_by_class(counts, shown):
    targets = np.repeat(np.arange(len(counts)), list(counts.values()))
    line = describe_match(classifier(list(counts)), dataset(list(counts), targets))
    assert line == f"own: {shown}, matched with the model's by name"
