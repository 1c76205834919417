"""Methods: ways to predict that make up for a shift of the inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from memo_tta.methods.bn import BatchNorm
from memo_tta.methods.memo import Memo
from memo_tta.methods.method import Method
from memo_tta.methods.options import Declaration, Options, declarations, ineffective, layered
from memo_tta.methods.prediction import Explanation, Prediction, Status
from memo_tta.methods.source import Source
from memo_tta.methods.tent import Tent
from memo_tta.methods.tta import TTA
from memo_tta.methods.ttt import TTT
from memo_tta.models.classifier import Classifier
from memo_tta.registry import Registry


@dataclass(frozen=True)
class MethodEntry:
    """A row of the table: a method with options of its own. Call it to build the method."""

    about: str
    method: type[Method[Any]]
    own: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, classifier: Classifier, **options: Any) -> Method[Any]:
        return self.method(classifier, **self._layered(options))

    def resolve(self, settings: Mapping[str, Any], options: Mapping[str, Any]) -> Options:
        """The options that hold: those given, else the row's, the model's settings, the defaults."""
        return self.method.resolve(settings, self._layered(options))

    @property
    def declarations(self) -> dict[str, Declaration]:
        """Its options, with the row's own defaults."""
        defaults = vars(self.resolve({}, {}))
        known = declarations(self.method.options_type)
        return {name: replace(known[name], default=value) for name, value in defaults.items()}

    def ineffective(self, options: Mapping[str, Any]) -> list[str]:
        """Names of the options that would have no effect with the others and the row's own."""
        found = ineffective(self.method.options_type, self._layered(options))
        return [name for name in found if name in options]

    def _layered(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return layered(self.method.options_type, self.own, options)


METHODS = Registry(
    "method",
    {
        "source": MethodEntry("the model as it is", Source),
        "tta": MethodEntry("average the predictions on the views, adapt nothing", TTA),
        # Chosen on validation corruptions and clean images by studies.choose_restorations, choose_step.
        "restore": MethodEntry(
            "undo noise, blur and haze that the image shows, average views of it, adapt nothing",
            TTA,
            {"augment": "restore", "n_views": 16, "early_views": 2, "early_confidence": 0.95},
        ),
        "bn1": MethodEntry("batch-norm statistics mixed with those of the point, N = 16", BatchNorm),
        "bn": MethodEntry(
            "batch-norm statistics mixed with those of 256 points, N = 256",
            BatchNorm,
            {"prior_strength": 256, "batch_size": 256},
        ),
        "tent": MethodEntry("entropy of 64 points, norm layers, online", Tent),
        "tent-episodic": MethodEntry("the same, starting anew for every batch", Tent, {"online": False}),
        "tent-all": MethodEntry("tent on all parameters, online", Tent, {"params": "all"}),
        "tent-bs1": MethodEntry(
            "tent on one point at a time, episodic, N = 16",
            Tent,
            {"online": False, "batch_size": 1, "prior_strength": 16},
        ),
        "ttt": MethodEntry("rotation loss of turned copies; needs a model trained with --joint", TTT),
        "memo": MethodEntry("marginal entropy of the views, all parameters", Memo),
        "memo-fast": MethodEntry(
            "memo where neither the source nor the first views are confident, else the source prediction",
            Memo,
            {"skip_confidence": 0.98, "early_views": 4, "early_confidence": 0.95},
        ),
        "memo-pce": MethodEntry(
            "memo with pairwise cross entropy instead", Memo, {"objective": "pairwise_cross_entropy"}
        ),
        "memo-ce": MethodEntry(
            "memo with conditional entropy instead", Memo, {"objective": "conditional_entropy"}
        ),
    },
)


def method(name: str, classifier: Classifier, **options: Any) -> Method[Any]:
    """Build a method of the table `METHODS` by its name; `memo methods NAME` lists its options."""
    return METHODS[name](classifier, **options)


__all__ = [
    "METHODS",
    "Explanation",
    "Memo",
    "Method",
    "MethodEntry",
    "Prediction",
    "Status",
    "method",
]
