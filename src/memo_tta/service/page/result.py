"""A prediction result as the page displays it."""

from collections.abc import Sequence
from dataclasses import dataclass

from memo_tta.methods import METHODS, Prediction, Status
from memo_tta.service.replica import PredictionResult

MAX_BARS = 5  # classes shown on each side
TINTS = 10  # steps of the colour scale from red to green


@dataclass(frozen=True)
class Words:
    """How the page tells what a method did: {method}, {views} and {reason} are filled in."""

    badge: str
    note: str
    tone: str  # good, plain or warning: a class of the style sheet


WORDS = {
    Status.ADAPTED: Words(
        "adapted", "{method} adapted a copy of the model to this image, and restored its weights.", "good"
    ),
    Status.AVERAGED: Words(
        "averaged",
        "{method} averaged the predictions over {views}; the model itself was not changed.",
        "good",
    ),
    Status.GATED: Words(
        "left alone", "The source is sure enough, so {method} left its prediction alone: {reason}.", "good"
    ),
    Status.SOURCE: Words("source", "The prediction of the model as it is.", "plain"),
    Status.NO_LAYER: Words("source", "{method} has no effect on this model: {reason}.", "warning"),
    Status.NOT_FINITE: Words(
        "source", "{method} failed on this image, so this is the source prediction: {reason}.", "warning"
    ),
    Status.DEADLINE: Words(
        "deadline",
        "There was no time for {method} before the deadline, so this is the source prediction.",
        "warning",
    ),
}


@dataclass(frozen=True)
class Bar:
    """The probability of one class."""

    label: str
    score: float
    is_predicted: bool


@dataclass(frozen=True)
class Side:
    """A prediction with its bars."""

    key: str  # before or after
    title: str
    prediction: Prediction
    bars: list[Bar]


@dataclass(frozen=True)
class Tile:
    """A view and its predictions, tinted by the probability of the class finally predicted for the image."""

    thumbnail: str
    before: Prediction
    after: Prediction
    tint_before: int
    tint_after: int


class DisplayedResult:
    """The source's prediction and the method's, with bars for the same classes, the views, and the time."""

    def __init__(self, result: PredictionResult, method: str):
        self.after, self.before = result.prediction, result.prediction.source
        self.method = method
        # Otherwise the prediction is the source's, and there is nothing to compare.
        self.is_method_applied = self.after.status in (Status.ADAPTED, Status.AVERAGED)
        self.is_changed = self.is_method_applied and self.after.index != self.before.index
        words = WORDS[self.after.status]
        views = f"{len(result.thumbnails)} {'view' if len(result.thumbnails) == 1 else 'views'}"
        self.badge, self.tone = words.badge, words.tone
        self.note = words.note.format(method=method, views=views, reason=self.after.reason)
        classes = _likeliest(self.before, self.after)
        self.sides = [Side("before", "Source", self.before, _bars(self.before, classes))]
        if self.is_method_applied:
            self.sides.append(Side("after", method, self.after, _bars(self.after, classes)))
        self.tiles = [
            Tile(thumbnail, before, after, self._tint(before), self._tint(after))
            for thumbnail, before, after in zip(result.thumbnails, result.before, result.after, strict=True)
        ]
        has_backward = self.after.adapted and METHODS[method].method.needs_gradients
        stages = {
            "total": "Time",
            "views": "Views",
            "model": "Forward, backward" if has_backward else "Forward",
        }
        seconds = result.seconds
        self.times = {title: 1000 * seconds[key] for key, title in stages.items() if seconds.get(key)}

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
