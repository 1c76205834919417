"""A model and a data set that go together."""

from memo_tta.data.dataset import Dataset
from memo_tta.models.classifier import Classifier


def fitted(classifier: Classifier, dataset: Dataset) -> Classifier:
    """The classifier over the data set's classes, with the crop that its images need."""
    if dataset.classes is not None:
        classifier = classifier.subset(dataset.classes)
    return classifier.cropped() if dataset.cropped else classifier
