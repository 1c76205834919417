"""An answer as the page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memo_tta.methods import Prediction, Status
from memo_tta.service.replica import PredictionResult, data_url

SHOWN = 5  # classes with a bar
TINTS = 10  # steps from red to green


@dataclass(frozen=True)
class Bar:
    label: str
    score: float
    is_answer: bool


@dataclass(frozen=True)
class Tile:
    """A view: what the model says of it before and after, tinted by how likely it finds the answer."""

    picture: str
    before: Prediction
    after: Prediction
    tint_before: int
    tint_after: int


class Result:
    """Both answers with bars for the same classes, the views, entropy and time."""

    def __init__(self, answer: PredictionResult, options: dict[str, Any]):
        self.after, self.before = answer.prediction, answer.prediction.source
        self.options, self.picture = options, data_url(answer.picture)
        self.changed = self.after.index != self.before.index
        self.worked = self.after.status in (Status.ADAPTED, Status.AVERAGED)
        self.late = self.after.status is Status.DEADLINE
        classes = _likeliest(self.before, self.after)
        self.sides = [
            ("Before", self.before, _bars(self.before, classes)),
            ("After", self.after, _bars(self.after, classes)),
        ]
        self.tiles = [
            Tile(picture, before, after, self._tint(before), self._tint(after))
            for picture, before, after in zip(answer.views, answer.before, answer.after, strict=True)
        ]
        self.milliseconds = {stage: 1000 * seconds for stage, seconds in answer.seconds.items()}

    def _tint(self, view: Prediction) -> int:
        return round(TINTS * float(view.probabilities[self.after.index]))


def _likeliest(*predictions: Prediction) -> list[int]:
    """Classes that either finds likely, those that the last one finds likeliest first."""
    highest = [max(scores) for scores in zip(*(p.probabilities.tolist() for p in predictions), strict=True)]
    chosen = sorted(range(len(highest)), key=lambda index: -highest[index])[:SHOWN]
    last = predictions[-1].probabilities
    return sorted(chosen, key=lambda index: -float(last[index]))


def _bars(prediction: Prediction, classes: Sequence[int]) -> list[Bar]:
    labels, scores = prediction.labels, prediction.probabilities.tolist()
    return [
        Bar(str(index) if labels is None else labels[index], scores[index], index == prediction.index)
        for index in classes
    ]
