"""Match the classes of a data set with those of a model."""

from dataclasses import replace

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError
from memo_tta.models.classifier import Classifier


def match_classes(classifier: Classifier, dataset: Dataset) -> tuple[Classifier, Dataset]:
    """Return the classifier limited to the data set's classes, and the data set with matching targets.

    The classifier also gets the crop that the images need.
    """
    if dataset.cropped:
        classifier = classifier.cropped()
    if dataset.classes is not None:
        return classifier.subset(dataset.classes), dataset
    return classifier, _with_model_targets(dataset, classifier)


def _with_model_targets(dataset: Dataset, classifier: Classifier) -> Dataset:
    """Return the data set with the model's class indices as targets.

    Classes are matched by name; without matching names, indices stay if there are as many classes.
    """
    names = classifier.labels
    if names is None or tuple(dataset.labels) == names:
        return dataset
    if set(dataset.labels) <= set(names):
        index = np.array([names.index(label) for label in dataset.labels])
        return replace(dataset, targets=index[dataset.targets], labels=names)
    is_numbered = list(dataset.labels) == [str(position) for position in range(len(dataset.labels))]
    if len(dataset.labels) == len(names) or (is_numbered and len(dataset.labels) < len(names)):
        return replace(dataset, labels=names)
    unknown = next(label for label in dataset.labels if label not in names)
    raise ConfigError(
        f"{dataset.name}: has {len(dataset.labels)} classes, the model {len(names)}, and {unknown!r} is not "
        "among the model's: name the folders after the model's classes"
    )
