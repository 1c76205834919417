"""What is served: one classifier, and the methods that may adapt copies of it."""

import warnings
from copy import copy, deepcopy
from typing import Any

from memo_tta.errors import ConfigError, MemoError, MemoWarning
from memo_tta.methods import METHODS, Method
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import ZOO, load
from memo_tta.service.settings import Settings


class ServedModel:
    """The classifier as it was loaded; nothing ever adapts this one, replicas are copies of it."""

    def __init__(self, classifier: Classifier, settings: Settings):
        if classifier.size is None:
            raise ConfigError(
                f"{classifier.name}: takes tensors, and the service takes images: "
                "its Classifier needs size, mean and std"
            )
        self.classifier, self.settings = classifier, settings
        self.fingerprint = fingerprint(classifier.module)
        self.methods = {name: self._defaults(name) for name in METHODS if self._can_serve(name)}

    @classmethod
    def load(cls, settings: Settings) -> "ServedModel":
        return cls(load(settings.model, settings.weights), settings)

    @property
    def model(self) -> str:
        """The model's name; of a file of the operator's, nothing that tells where it lies."""
        spec = self.settings.model
        return spec if spec in ZOO or ".py:" not in spec else self.classifier.name

    def twin(self) -> Classifier:
        """The classifier with a module of its own."""
        twin = copy(self.classifier)
        twin.module = deepcopy(self.classifier.module)
        return twin

    def build(self, name: str, classifier: Classifier, given: dict[str, Any]) -> Method[Any]:
        """The method with the operator's options, then those given."""
        return METHODS[name](classifier, **{**self.settings.options.get(name, {}), **given})

    def _can_serve(self, name: str) -> bool:
        """Whether it works on this model, one point at a time, without memory of those before."""
        if name == self.settings.method:
            method = self.build(name, self.classifier, {})
            if method.points > 1 or method.online:
                raise ConfigError(f"{name}: needs more than the one point of a request: serve another method")
            return True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", MemoWarning)  # that it has no effect here
                method = self.build(name, self.classifier, {})
        except (MemoError, MemoWarning):
            return False
        return method.points == 1 and not method.online

    def _defaults(self, name: str) -> dict[str, Any]:
        """The options of the method that a request may change, as they are if it does not."""
        options = self.build(name, self.classifier, {}).options
        defaults = {key: getattr(options, key) for key in ("n_views", "lr") if hasattr(options, key)}
        views, limit = defaults.get("n_views", 0), self.settings.max_views
        if views > limit:
            if name == self.settings.method:
                raise ConfigError(
                    f"{name}: takes {views} views, and max_views is {limit}: raise the limit, or set n_views"
                )
            defaults["n_views"] = limit
        return defaults
