"""What one method said of one point."""

from dataclasses import dataclass

from memo_tta.data.dataset import Dataset
from memo_tta.methods import Prediction
from memo_tta.methods.ledger import Cost


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a run; seconds are what the method would take alone."""

    dataset: str
    corruption: str
    severity: int
    place: int
    sample: str
    method: str
    label: int
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

    @property
    def right(self) -> bool:
        return self.prediction == self.label

    @property
    def model_seconds(self) -> float:
        """Forward, backward and update."""
        return self.seconds - self.views_seconds - self.predict_seconds


def record(dataset: Dataset, place: int, method: str, prediction: Prediction, cost: Cost) -> Record:
    return Record(
        dataset.name,
        dataset.corruption,
        dataset.severity,
        place,
        str(dataset.id(place)),
        method,
        int(dataset.y[place]),
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
    )
