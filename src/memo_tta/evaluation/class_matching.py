"""Match the classes of a data set with those of a model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError
from memo_tta.evaluation.class_names import match_names, synonyms
from memo_tta.models.classifier import Classifier

SHOWN = 3  # names in a message before "and n more"
SHOWN_COUNTS = 5  # classes whose numbers of images are listed one by one
PLACEHOLDER = re.compile(r"(label|class)?[ _-]?\d+", re.IGNORECASE)  # a name that says only the index
UNNAMED = "in their order, as the model has no class names"
SAME_NUMBER = "in their order, as no name is the same: check that the model has the same order"


@dataclass(frozen=True)
class ClassMatch:
    """The model's class of each of a data set's classes, and how they were matched."""

    classes: np.ndarray  # model class by data set class; -1 for one without images
    how: str


def match_classes(classifier: Classifier, dataset: Dataset) -> tuple[Classifier, Dataset]:
    """Return the classifier limited to the data set's classes, and the data set with matching targets.

    The classifier also gets the crop that the images need.
    """
    if dataset.cropped:
        classifier = classifier.cropped()
    if dataset.classes is not None:
        return classifier.subset(dataset.classes), dataset
    classes = find_match(dataset, classifier.labels).classes
    labels = classifier.labels or _by_class(dataset.labels, classes)
    return classifier, replace(dataset, targets=classes[dataset.targets], labels=labels)


def _by_class(labels: Sequence[str], classes: np.ndarray) -> list[str]:
    """Return the names of the model's classes, after those of the data set."""
    names = dict(zip(classes.tolist(), labels, strict=True))
    return [names.get(index, str(index)) for index in range(int(classes.max()) + 1)]


def describe_match(classifier: Classifier, dataset: Dataset) -> str:
    """Return one line that says how the classes match the model's, and how many images each has."""
    if dataset.classes is None:
        how = f"matched with the model's {find_match(dataset, classifier.labels).how}"
    else:
        how = "the model is limited to them"
    counts = np.bincount(dataset.targets, minlength=len(dataset.labels))
    present = np.flatnonzero(counts)
    if len(present) <= SHOWN_COUNTS:
        shown = ", ".join(f"{dataset.labels[int(index)]} {counts[index]}" for index in present)
    else:
        low, high = counts[present].min(), counts[present].max()
        shown = f"{low} each" if low == high else f"{low} to {high} each"
    return f"{dataset.name}: {len(dataset)} images of {len(present)} classes ({shown}), {how}"


def find_match(dataset: Dataset, names: Sequence[str] | None) -> ClassMatch:
    """Match the classes with the model's names: by name, WordNet id or index, or in their order."""
    every = np.arange(len(dataset.labels))
    numbers = _numbers(dataset.labels)
    if names is None:
        return ClassMatch(every, UNNAMED) if numbers is None else ClassMatch(numbers, "by index")
    if tuple(dataset.labels) == tuple(names):
        return ClassMatch(every, "by name")
    if _is_imagenet(dataset.labels) and _is_imagenet(names):
        return ClassMatch(every, "by WordNet id")
    present = {int(target): dataset.labels[int(target)] for target in np.unique(dataset.targets)}
    found, how = match_names(dataset.name, present, names)
    if len(found) == len(present):
        return ClassMatch(_as_array(found, len(every)), how)
    if not found and (match := _match_without_names(dataset, list(present), numbers, names)):
        return match
    unknown = [label for target, label in present.items() if target not in found]
    if not found and numbers is not None:
        unknown = [label for label in unknown if int(label) >= len(names)]
    raise ConfigError(
        f"{dataset.name}: has {len(present)} classes, the model {len(names)}, and {_some(unknown)} "
        f"{'is' if len(unknown) == 1 else 'are'} not among the model's: name the folders after the model's "
        f"classes ({_some(names)}), by WordNet id or by index"
    )


def _match_without_names(
    dataset: Dataset, present: Sequence[int], numbers: np.ndarray | None, names: Sequence[str]
) -> ClassMatch | None:
    """Match classes that are called otherwise than the model's, if their indices or number allow it."""
    if numbers is not None:
        return ClassMatch(numbers, "by index") if numbers[present].max() < len(names) else None
    if len(dataset.labels) == len(names):
        return ClassMatch(np.arange(len(names)), SAME_NUMBER)
    are_placeholders = all(PLACEHOLDER.fullmatch(name) for name in names)
    if _is_imagenet(dataset.labels) and are_placeholders and len(present) == len(names):
        in_order = {target: index for index, target in enumerate(present)}
        return ClassMatch(_as_array(in_order, len(dataset.labels)), "in the order of their WordNet ids")
    return None


def _as_array(classes: Mapping[int, int], size: int) -> np.ndarray:
    array = np.full(size, -1)
    array[list(classes)] = list(classes.values())
    return array


def _numbers(labels: Sequence[str]) -> np.ndarray | None:
    """Return the labels as indices if each is another number."""
    if not all(label.isdecimal() for label in labels):
        return None
    numbers = [int(label) for label in labels]
    return np.array(numbers) if len(set(numbers)) == len(numbers) else None


def _is_imagenet(names: Sequence[str]) -> bool:
    """Return whether these are ImageNet's 1,000 classes in their order, whichever synonyms they use."""
    known = class_list("imagenet")
    if len(names) != len(known):
        return False
    same = sum(bool(synonyms(name) & synonyms(label)) for name, label in zip(names, known, strict=True))
    return same > len(known) / 2


def _some(names: Sequence[str]) -> str:
    """List the first names, and count the others."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
