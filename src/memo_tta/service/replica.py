"""A copy of the model that one request at a time has to itself."""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image

from memo_tta.data.corruptions import corrupt
from memo_tta.errors import InputError
from memo_tta.image import read_image
from memo_tta.methods import Explanation, Prediction, Status
from memo_tta.methods.shared_work import SharedWork
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.fingerprint import fingerprint
from memo_tta.seeding import content_id, sample_rng
from memo_tta.service.deadline import Costs, DeadlineExceeded, DeadlineHooks
from memo_tta.service.model import ServedModel

LATE = "there was no time to adapt before the deadline"
THUMBNAIL = 64  # pixels a side, at most
WARM_UP_VIEWS = 2  # of methods beside the default one

IsWanted = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class CorruptionLevel:
    """A corruption, as the page applies it to what the model sees."""

    name: str
    severity: int


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """What a client wants."""

    image: Image.Image | np.ndarray  # opened, perhaps not decoded yet
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    explain: bool = False
    shift: CorruptionLevel | None = None
    until: float  # of perf_counter


@dataclass(frozen=True)
class PredictionResult:
    """What came of it, and how many seconds each stage took."""

    prediction: Prediction
    picture: np.ndarray  # what the model saw, uint8 (size, size, 3)
    views: list[str]  # thumbnails, as data: URLs
    before: list[Prediction]  # of each view
    after: list[Prediction]
    seconds: dict[str, float]


class Replica:
    """Adapts its own module; after each answer the weights are the source's again."""

    def __init__(self, served: ServedModel, costs: Costs, is_wanted: IsWanted = lambda: True):
        self.classifier = served.twin()
        self._served, self._watch = served, DeadlineHooks(self.classifier.module)
        self._costs = Costs()  # first predictions are slow: they say nothing of the others
        self._warm_up(is_wanted)
        self._costs = costs
        self._predict_grey(served.settings.method, {}, is_wanted)

    @property
    def is_intact(self) -> bool:
        """Whether its weights are the source's, bit for bit."""
        return fingerprint(self.classifier.module) == self._served.fingerprint

    def picture(self, image: Image.Image | np.ndarray, shift: CorruptionLevel | None) -> np.ndarray:
        """What the model would see."""
        return self._point(image, shift)[1].fitted

    def predict(self, ask: PredictionRequest, is_wanted: IsWanted = lambda: True) -> PredictionResult:
        """Adapt if the time is enough, else give the source's prediction with the status "deadline"."""
        began = perf_counter()
        classifier, point = self._point(ask.image, ask.shift)
        decoded, work = perf_counter(), SharedWork()
        with self._watch.over(np.inf, is_wanted):
            source = self._served.build("source", classifier, {})
            (prediction,) = source.predict_points([point], [None], work)
        seconds = {"decode": decoded - began, "source": perf_counter() - decoded}
        explanation = Explanation(prediction, point.x[None][:0], [], [])
        if ask.method != "source":
            work.start_method()
            explanation = self._adapt(ask, classifier, point, work, prediction, is_wanted)
            cost = work.cost()
            seconds |= {"views": cost.views, "model": cost.model, "predict": cost.predict}
        pictures = [data_url(picture) for picture in classifier.pictures(explanation.views)]
        return PredictionResult(
            explanation.prediction, point.fitted, pictures, explanation.before, explanation.after, seconds
        )

    def _adapt(
        self,
        ask: PredictionRequest,
        classifier: Classifier,
        point: Point,
        work: SharedWork,
        source: Prediction,
        is_wanted: IsWanted,
    ) -> Explanation:
        kind = ask.method, ask.options.get("n_views"), ask.explain
        nothing = point.x[None][:0]
        late = Explanation(replace(source, status=Status.DEADLINE, reason=LATE), nothing, [], [])
        began = perf_counter()
        if not self._costs.fits(kind, ask.until - began):
            return late
        method = self._served.build(ask.method, classifier, ask.options)
        try:
            with self._watch.over(ask.until, is_wanted):
                if ask.explain:
                    explanation = method.explain(point, work=work)
                else:
                    (prediction,) = method.predict_points([point], [None], work)
                    explanation = Explanation(prediction, nothing, [], [])
        except DeadlineExceeded:
            explanation = late
        self._costs.took(kind, perf_counter() - began)
        return explanation

    def _point(
        self, image: Image.Image | np.ndarray, shift: CorruptionLevel | None
    ) -> tuple[Classifier, Point]:
        """The point, and the classifier it is meant for: a corrupted image is not resized again."""
        point = self.classifier.point(_decoded(image))
        if shift is None:
            return self.classifier, point
        rng = sample_rng(0, f"{shift.name} {shift.severity} {content_id(point.fitted)}")
        cropped = self.classifier.cropped()
        return cropped, cropped.point(corrupt(point.fitted, shift.name, shift.severity, rng))

    def _warm_up(self, is_wanted: IsWanted) -> None:
        """The default method, and all that draw views: the code that makes those is loaded at first use."""
        default = self._served.settings.method
        self._predict_grey(default, {}, is_wanted)
        for name, options in self._served.methods.items():
            if name != default and "n_views" in options:
                self._predict_grey(name, {"n_views": min(WARM_UP_VIEWS, options["n_views"])}, is_wanted)

    def _predict_grey(self, method: str, given: dict[str, Any], is_wanted: IsWanted) -> None:
        size = self.classifier.size or 1
        ask = PredictionRequest(
            image=np.full((size, size, 3), 128, np.uint8),
            method=method,
            options={**self._served.methods[method], **given},
            until=np.inf,
        )
        self.predict(ask, is_wanted)


def _decoded(image: Image.Image | np.ndarray) -> np.ndarray:
    try:
        return read_image(image)
    except InputError:
        raise
    except Exception:  # what a decoder raises on damaged bytes is anybody's guess
        raise InputError("image: cannot be decoded: is it truncated or damaged?") from None


def data_url(picture: np.ndarray) -> str:
    """A small PNG that a page can show as it is."""
    image, file = Image.fromarray(picture), io.BytesIO()
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
