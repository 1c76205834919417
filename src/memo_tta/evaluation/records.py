"""The rows of a run: predictions, points that could not be read, and records that could not be computed."""

from dataclasses import dataclass

from memo_tta.data.dataset import Dataset
from memo_tta.methods import Prediction
from memo_tta.methods.shared_work import Cost


@dataclass(frozen=True, slots=True)
class Record:
    """One method's prediction for one point; seconds are what the method would take alone."""

    dataset: str
    corruption: str
    severity: int
    position: int
    sample: str
    method: str
    target: int
    prediction: int
    score: float
    entropy_before: float
    entropy_after: float
    marginal_entropy: float | None
    adapted: bool
    status: str
    reason: str | None
    seconds: float
    views_seconds: float
    predict_seconds: float  # before and after adaptation
    shift: float | None  # from the training data, if the model has batch norm

    @property
    def right(self) -> bool:
        return self.prediction == self.target

    @property
    def model_seconds(self) -> float:
        """Seconds of forward and backward passes and the update."""
        return self.seconds - self.views_seconds - self.predict_seconds


@dataclass(frozen=True)
class SkippedPoint:
    """A point that could not be read, with the reason."""

    dataset: str
    corruption: str
    severity: int
    position: int
    sample: str
    reason: str


@dataclass(frozen=True)
class FailedRecord:
    """A record that is missing because computing it failed repeatedly, with the last reason."""

    dataset: str
    corruption: str
    severity: int
    method: str
    position: int
    sample: str
    reason: str


def make_record(dataset: Dataset, position: int, method: str, prediction: Prediction, cost: Cost) -> Record:
    """Compare a prediction with its target and keep what reports need."""
    return Record(
        dataset.name,
        dataset.corruption,
        dataset.severity,
        position,
        str(dataset.id(position)),
        method,
        int(dataset.targets[position]),
        prediction.index,
        prediction.score,
        prediction.source.entropy,
        prediction.entropy,
        prediction.marginal_entropy,
        prediction.adapted,
        str(prediction.status),
        prediction.reason,
        cost.total,
        cost.views,
        cost.source + cost.predict,
        prediction.shift,
    )
