"""Methods: ways to predict that make up for a shift of the inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memo_tta.methods.bn import BatchNorm
from memo_tta.methods.memo import Memo
from memo_tta.methods.method import Method
from memo_tta.methods.options import Options
from memo_tta.methods.prediction import Prediction
from memo_tta.methods.presets import expanded
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
    preset: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, classifier: Classifier, **options: Any) -> Method[Any]:
        return self.method(classifier, **{**self.preset, **options})

    @property
    def options(self) -> Options:
        """Its options where neither model nor user says otherwise."""
        return self.method.options_type(**expanded(self.preset))


METHODS = Registry(
    "method",
    {
        "source": MethodEntry("the model as it is", Source),
        "tta": MethodEntry("average the predictions on the views, adapt nothing", TTA),
        "restore": MethodEntry(
            "undo noise, blur and haze that the image shows, average views of it, adapt nothing",
            Memo,
            {"preset": "best"},
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
        "memo-pce": MethodEntry(
            "memo with pairwise cross entropy instead", Memo, {"objective": "pairwise_cross_entropy"}
        ),
        "memo-ce": MethodEntry(
            "memo with conditional entropy instead", Memo, {"objective": "conditional_entropy"}
        ),
    },
)

__all__ = ["METHODS", "Memo", "Method", "MethodEntry", "Prediction"]
