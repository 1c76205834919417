"""A prediction result as the page displays it."""

from collections.abc import Sequence
from dataclasses import dataclass

from memo_tta.methods import Prediction, Status
from memo_tta.service.replica import PredictionResult

MAX_BARS = 5  # classes shown on each side
TINTS = 10  # steps of the colour scale from red to green


@dataclass(frozen=True)
class Bar:
    """The probability of one class."""

    label: str
    score: float
    is_predicted: bool


@dataclass(frozen=True)
class Tile:
    """A view and its predictions, tinted by the probability of the class finally predicted for the image."""

    thumbnail: str
    before: Prediction
    after: Prediction
    tint_before: int
    tint_after: int


class DisplayedResult:
    """The predictions before and after with bars for the same classes, the views, and the time."""

    def __init__(self, result: PredictionResult):
        self.after, self.before = result.prediction, result.prediction.source
        self.is_changed = self.after.index != self.before.index
        # Otherwise the prediction is the source's.
        self.is_method_applied = self.after.status in (Status.ADAPTED, Status.AVERAGED)
        self.is_past_deadline = self.after.status is Status.DEADLINE
        classes = _likeliest(self.before, self.after)
        self.sides = [
            ("Before", self.before, _bars(self.before, classes)),
            ("After", self.after, _bars(self.after, classes)),
        ]
        self.tiles = [
            Tile(thumbnail, before, after, self._tint(before), self._tint(after))
            for thumbnail, before, after in zip(result.thumbnails, result.before, result.after, strict=True)
        ]
        self.milliseconds = {stage: 1000 * seconds for stage, seconds in result.seconds.items()}

    def _tint(self, view: Prediction) -> int:
        return round(TINTS * float(view.probabilities[self.after.index]))


def _likeliest(before: Prediction, after: Prediction) -> list[int]:
    """Return the classes likeliest in either prediction, in descending order of their score after."""
    scores_after = _scores(after)
    highest = [max(scores) for scores in zip(_scores(before), scores_after, strict=True)]
    chosen = sorted(range(len(highest)), key=lambda index: -highest[index])[:MAX_BARS]
    return sorted(chosen, key=lambda index: -scores_after[index])


def _bars(prediction: Prediction, classes: Sequence[int]) -> list[Bar]:
    labels, scores = prediction.labels, _scores(prediction)
    return [
        Bar(str(index) if labels is None else labels[index], scores[index], index == prediction.index)
        for index in classes
    ]


def _scores(prediction: Prediction) -> list[float]:
    return prediction.probabilities.numpy().tolist()
