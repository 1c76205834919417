"""A model and a data set that go together."""

from dataclasses import replace

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError
from memo_tta.models.classifier import Classifier


def fit(classifier: Classifier, dataset: Dataset) -> tuple[Classifier, Dataset]:
    """The classifier over the data set's classes, with the crop its images need; labels that index them."""
    if dataset.cropped:
        classifier = classifier.cropped()
    if dataset.classes is not None:
        return classifier.subset(dataset.classes), dataset
    return classifier, _relabelled(dataset, classifier)


def _relabelled(dataset: Dataset, classifier: Classifier) -> Dataset:
    """The data set with the model's class indices: by name, or as they are if their number is the model's."""
    names = classifier.labels
    if names is None or tuple(dataset.labels) == names:
        return dataset
    if set(dataset.labels) <= set(names):
        index = np.array([names.index(label) for label in dataset.labels])
        return replace(dataset, y=index[dataset.y], labels=names)
    numbered = list(dataset.labels) == [str(place) for place in range(len(dataset.labels))]
    if len(dataset.labels) == len(names) or (numbered and len(dataset.labels) < len(names)):
        return replace(dataset, labels=names)
    unknown = next(label for label in dataset.labels if label not in names)
    raise ConfigError(
        f"{dataset.name}: has {len(dataset.labels)} classes, the model {len(names)}, and {unknown!r} is not "
        "among them: name the folders like the model's classes"
    )
