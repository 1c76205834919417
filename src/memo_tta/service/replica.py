"""A copy of the model that serves one request at a time."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image

from memo_tta.data.corruptions import corrupt
from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.errors import ModelError
from memo_tta.image import height_and_width, to_rgb
from memo_tta.methods import Explanation, Prediction, Status
from memo_tta.methods.shared_work import SharedWork
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.fingerprint import fingerprint
from memo_tta.seeding import content_id, sample_rng
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import (
    AdaptationTimes,
    Cancelled,
    DeadlineExceeded,
    DeadlineHooks,
    IsCancelled,
    never_cancelled,
)
from memo_tta.service.memory import MemoryBudget
from memo_tta.service.model import ServedModel
from memo_tta.service.uploaded_image import BYTES_PER_PIXEL, UploadedImage

DECODING_BYTES = 2**28  # that all replicas together may take for images that they are decoding
SMALL_PIXELS = 10**6  # an image that is decoded even after the deadline: within milliseconds
DEADLINE_REASON = "there was no time to adapt before the deadline"
THUMBNAIL_SIZE = 64  # pixels; the longest side of a thumbnail
WARM_UP_VIEWS = 2  # for methods other than the default


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """One image to predict, the method and its options, and the deadline."""

    image: UploadedImage | np.ndarray
    method: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    explain: bool = False
    corruption_level: CorruptionLevel | None = None  # applied to the resized and cropped image
    deadline: float  # a perf_counter time


@dataclass(frozen=True)
class PredictionResult:
    """A prediction, its views if the request asked for them, and the duration of each stage."""

    prediction: Prediction
    thumbnails: list[str]  # of each view, as data: URLs
    before: list[Prediction]  # of each view, before adaptation
    after: list[Prediction]
    seconds: dict[str, float]


class Replica:
    """Adapts its own copy of the module and restores the source's weights after each prediction."""

    def __init__(
        self,
        served_model: ServedModel,
        times: AdaptationTimes,
        decoding: MemoryBudget,
        is_cancelled: IsCancelled = never_cancelled,
    ):
        self.classifier = served_model.copy_classifier()
        self.fingerprint = served_model.fingerprint  # when its weights were last checked
        self._served_model, self._hooks = served_model, DeadlineHooks(self.classifier.module)
        self._decoding = decoding
        self._times = AdaptationTimes()  # the first predictions are slow and tell nothing about later ones
        self._warm_up(is_cancelled)
        self._times = times
        self._predict_grey(served_model.settings.method, {}, is_cancelled)

    @property
    def is_intact(self) -> bool:
        """Whether its weights are exactly the source's."""
        self.fingerprint = fingerprint(self.classifier.module)
        return self.fingerprint == self._served_model.fingerprint

    def preview(self, request: PredictionRequest, is_cancelled: IsCancelled = never_cancelled) -> np.ndarray:
        """Return the image as the model sees it, uint8 (height, width, 3)."""
        return to_rgb(self._point(request, is_cancelled)[1].fitted)

    def predict(
        self, request: PredictionRequest, is_cancelled: IsCancelled = never_cancelled
    ) -> PredictionResult:
        """Adapt and predict; without enough time, return the source prediction with status "deadline"."""
        started = perf_counter()
        classifier, point = self._point(request, is_cancelled)
        decoded, work = perf_counter(), SharedWork()
        with self._hooks.enforce(np.inf, is_cancelled):
            source = self._served_model.build_method("source", classifier, {})
            (prediction,) = source.predict_points([point], [None], [work])
        seconds = {"decode": decoded - started, "source": perf_counter() - decoded}
        explanation = _without_views(prediction, point)
        if request.method != "source":
            work.start_method()
            explanation = self._adapt(request, classifier, point, work, prediction, is_cancelled)
            cost = work.cost()
            seconds |= {"views": cost.views, "model": cost.model, "predict": cost.predict}
        thumbnails = [thumbnail_url(view) for view in classifier.pictures(explanation.views)]
        return PredictionResult(
            explanation.prediction, thumbnails, explanation.before, explanation.after, seconds
        )

    def _adapt(
        self,
        request: PredictionRequest,
        classifier: Classifier,
        point: Point,
        work: SharedWork,
        source: Prediction,
        is_cancelled: IsCancelled,
    ) -> Explanation:
        kind = request.method, request.options.get("n_views"), request.explain
        too_late = _without_views(replace(source, status=Status.DEADLINE, reason=DEADLINE_REASON), point)
        started = perf_counter()
        if not self._times.fits(kind, request.deadline - started):
            return too_late
        method = self._served_model.build_method(request.method, classifier, request.options)
        try:
            with self._hooks.enforce(request.deadline, is_cancelled):
                if request.explain:
                    explanation = method.explain(point, work=work)
                else:
                    (prediction,) = method.predict_points([point], [None], [work])
                    explanation = _without_views(prediction, point)
        except DeadlineExceeded:
            explanation = too_late
        self._times.add(kind, perf_counter() - started)
        return explanation

    def _point(self, request: PredictionRequest, is_cancelled: IsCancelled) -> tuple[Classifier, Point]:
        """Return the point and its classifier, which does not resize a corrupted image a second time."""
        point = self.classifier.point(self._pixels(request, is_cancelled))
        corruption_level = request.corruption_level
        if corruption_level is None:
            return self.classifier, point
        corruption, severity = corruption_level
        rng = sample_rng(0, f"{corruption} {severity} {content_id(point.fitted)}")
        cropped = self.classifier.cropped()
        return cropped, cropped.point(corrupt(to_rgb(point.fitted), corruption, severity, rng))

    def _pixels(self, request: PredictionRequest, is_cancelled: IsCancelled) -> np.ndarray:
        """Return the pixels of the request's image; past the deadline, a large image is not decoded."""
        image = request.image
        if isinstance(image, np.ndarray):
            return image
        n_pixels = image.pixels

        def check() -> None:
            if is_cancelled():
                raise Cancelled
            if n_pixels > SMALL_PIXELS and perf_counter() > request.deadline:
                raise ApiError("expired")

        with self._decoding.hold(BYTES_PER_PIXEL * n_pixels, check):
            return image.decode(check)

    def _warm_up(self, is_cancelled: IsCancelled) -> None:
        """Predict with the default method and with all that draw views, whose code is loaded at first use."""
        default = self._served_model.settings.method
        self._predict_grey(default, {}, is_cancelled)
        for name, options in self._served_model.methods.items():
            if name != default and "n_views" in options:
                self._predict_grey(name, {"n_views": min(WARM_UP_VIEWS, options["n_views"])}, is_cancelled)

    def _predict_grey(self, method: str, options: Mapping[str, Any], is_cancelled: IsCancelled) -> None:
        shape = height_and_width(self.classifier.size or 1)
        request = PredictionRequest(
            image=np.full((*shape, 3), 128, np.uint8),
            method=method,
            options={**self._served_model.methods[method], **options},
            deadline=np.inf,
        )
        source = self.predict(request, is_cancelled).prediction.source
        if not source.logits.isfinite().all():
            raise ModelError("its logits for a grey image are not finite")


def _without_views(prediction: Prediction, point: Point) -> Explanation:
    return Explanation(prediction, point.x[None][:0], [], [])


def thumbnail_url(image: np.ndarray, size: int = THUMBNAIL_SIZE) -> str:
    """Return an image as a small PNG in a data: URL, with at most `size` pixels per side."""
    thumbnail, file = Image.fromarray(image), io.BytesIO()
    thumbnail.thumbnail((size, size))
    thumbnail.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
