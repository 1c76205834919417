"""The model that is served: one classifier, and the methods that may adapt copies of it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError, MemoError, MemoWarning
from memo_tta.methods import METHODS, Method
from memo_tta.methods.footprint import measure_footprint
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import ZOO, load
from memo_tta.service.samples import find_samples
from memo_tta.service.settings import Settings
from memo_tta.service.uploaded_image import PixelLimits

REPLICA_BYTES = 2 * 2**30  # that a replica may take by default: requests with many views run in parts
GAPS = 2  # memory that requests of different methods and sizes cannot share, measured with ResNet-50


class ServedModel:
    """The classifier as loaded, which is never adapted itself: replicas adapt copies of it."""

    def __init__(self, classifier: Classifier, settings: Settings):
        if classifier.size is None:
            raise ConfigError(
                f"{classifier.name}: takes tensors, but the service takes images: "
                "build its Classifier with size, mean and std"
            )
        channels = classifier.preprocessing and classifier.preprocessing.shape[0]
        if channels not in (1, 3):
            raise ConfigError(
                f"{classifier.name}: takes images of {channels} channels, but the service takes "
                "grey and RGB ones: use it from Python, with arrays"
            )
        self.classifier, self.settings = classifier, settings
        self.fingerprint = fingerprint(classifier.module)
        self._micro_batches: dict[str, int] = {}
        candidates = METHODS if settings.methods is None else settings.methods
        self.methods = {name: self._default_options(name) for name in candidates if self._can_serve(name)}
        self.replica_bytes = max(map(self._limit_memory, self.methods))
        limits = PixelLimits(settings.max_pixels, self.resized_side)
        self.samples = find_samples(classifier.labels, settings.samples, settings.max_body, limits)

    @classmethod
    def load(cls, settings: Settings) -> "ServedModel":
        """Load the model that the settings name."""
        return cls(load(settings.model, **settings.model_arguments), settings)

    @property
    def name(self) -> str:
        """The model's name as the operator wrote it, without the folders if it names a file or a folder."""
        spec = self.settings.model
        if ".py:" in spec:
            return self.classifier.name
        library, colon, name = spec.rpartition(":")
        is_path = spec not in ZOO and (name.startswith((".", "/", "~")) or Path(name).exists())
        return f"{library}{colon}{Path(name).name}" if is_path else spec

    @property
    def resized_side(self) -> int:
        """The pixels to which the shorter side of an image is resized."""
        preprocessing = self.classifier.preprocessing
        assert preprocessing is not None
        return preprocessing.shorter_side

    def copy_classifier(self) -> Classifier:
        """Return the classifier with a module of its own."""
        return self.classifier.independent()

    def build_method(self, name: str, classifier: Classifier, options: Mapping[str, Any]) -> Method[Any]:
        """Build a method; these options take precedence over the operator's."""
        limit = {"micro_batch": self._micro_batches[name]} if name in self._micro_batches else {}
        return METHODS[name](classifier, **{**limit, **self.settings.options.get(name, {}), **options})

    def check_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Raise a ConfigError if a request's options are not valid together with the operator's."""
        chosen = {**self.settings.options.get(name, {}), **options}
        METHODS[name].resolve(self.classifier.settings, chosen, self.classifier.size)

    def _is_chosen(self, name: str) -> bool:
        """Return whether the operator chose the method, as the default or for requests to choose."""
        return name == self.settings.method or name in (self.settings.methods or ())

    def _can_serve(self, name: str) -> bool:
        """Return whether the method works on this model with single, independent images.

        Raise a ConfigError instead if the operator chose the method.
        """
        if self._is_chosen(name):
            method = self.build_method(name, self.classifier, {})
            if method.points > 1:
                raise ConfigError(
                    f"{name}: takes {method.points} images at once, but a request has one: "
                    "serve another method"
                )
            if method.online:
                raise ConfigError(
                    f"{name}: carries state from one image to the next, but requests are independent: "
                    "serve another method or change its options"
                )
            return True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", MemoWarning)  # a method without effect on this model
                method = self.build_method(name, self.classifier, {})
        except (MemoError, MemoWarning):
            return False
        return method.points == 1 and not method.online

    def _limit_memory(self, name: str) -> int:
        """Return the most bytes that a replica takes for a method; limit its views per pass if it can."""
        views = {"n_views": self.settings.max_views} if "n_views" in self.methods[name] else {}
        method = self.build_method(name, self.classifier, views)
        footprint = measure_footprint(method, points=1)
        taken = int(GAPS * footprint.total)
        if taken <= REPLICA_BYTES or getattr(method.options, "micro_batch", 1) is not None:
            return taken
        self._micro_batches[name] = footprint.fitting_views(int(REPLICA_BYTES / GAPS))
        return int(GAPS * (footprint.model + footprint.view * self._micro_batches[name]))

    def _default_options(self, name: str) -> dict[str, Any]:
        """Return the default values of the options that a request may set."""
        options = self.build_method(name, self.classifier, {}).options
        defaults = {key: getattr(options, key) for key in ("n_views", "lr") if hasattr(options, key)}
        n_views, limit = defaults.get("n_views", 0), self.settings.max_views
        if n_views > limit:
            if self._is_chosen(name):
                raise ConfigError(
                    f"{name}: n_views: expected at most max_views = {limit}, got {n_views}: "
                    "lower n_views or raise max_views"
                )
            defaults["n_views"] = limit
        return defaults
