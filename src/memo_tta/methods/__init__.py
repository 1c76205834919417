"""Methods: ways to predict under distribution shift, all listed in the table `METHODS`.

A method answers five questions, each with a module of its own: which views to use (`view_source`), whether to
adapt (`gates`), how to adapt (`episode`, `gradient`, `update`, `parameters`, `precision`), how to combine
views (`average`), and what to keep from point to point (`memory`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from memo_tta.image import Size
from memo_tta.methods.bn import BatchNorm
from memo_tta.methods.cotta import CoTTA
from memo_tta.methods.deyo import DeYO
from memo_tta.methods.eta import ETA
from memo_tta.methods.lame import LAME
from memo_tta.methods.memo import Memo
from memo_tta.methods.method import Method
from memo_tta.methods.options import Declaration, Options, declarations, ineffective, merge_options
from memo_tta.methods.prediction import Explanation, Prediction, Status
from memo_tta.methods.recenter import Recenter
from memo_tta.methods.sar import SAR
from memo_tta.methods.source import Source
from memo_tta.methods.t3a import T3A
from memo_tta.methods.tent import Tent
from memo_tta.methods.tta import TTA
from memo_tta.methods.ttt import TTT
from memo_tta.models.classifier import Classifier
from memo_tta.registry import Registry
from memo_tta.views.crop_flip import is_large

NO_SETTINGS: Mapping[str, Any] = {}
# MEMO on networks that the paper has not tuned: views that keep the object, a gate for sure predictions, and
# little adaptation to images that are hardly shifted. Chosen on validation corruptions and clean images.
UNTUNED_MEMO = {
    "augment": "augmix-mild",
    "skip_margin": 0.8,
    "clean_strength": 0.125,
    "predict": "with_source",
}


@dataclass(frozen=True)
class MethodEntry:
    """A row of the table: a method class, and defaults that replace those of its options.

    Call the entry with a classifier to build the method. On large images, `large` are the defaults instead,
    and `untuned` are added to them if the model was not tuned: if its settings have no learning rate.
    """

    about: str
    method: type[Method[Any]]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    large: Mapping[str, Any] | None = None
    untuned: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, classifier: Classifier, **options: Any) -> Method[Any]:
        return self.method(classifier, **self._with_defaults(options, classifier.size, classifier.settings))

    def resolve(
        self, settings: Mapping[str, Any], options: Mapping[str, Any], size: Size | None = None
    ) -> Options:
        """Return the effective options: those given, else the row's, the model's settings, the defaults."""
        return self.method.resolve(settings, self._with_defaults(options, size, settings))

    @property
    def declarations(self) -> dict[str, Declaration]:
        """The method's options by name, with the row's defaults."""
        defaults = vars(self.resolve({}, {}))
        declared = declarations(self.method.options_type)
        return {name: replace(declared[name], default=value) for name, value in defaults.items()}

    def ineffective(self, options: Mapping[str, Any]) -> list[str]:
        """Return the names of the options that have no effect with the others and the row's defaults."""
        found = ineffective(self.method.options_type, self._with_defaults(options))
        return [name for name in found if name in options]

    def _with_defaults(
        self, options: Mapping[str, Any], size: Size | None = None, settings: Mapping[str, Any] = NO_SETTINGS
    ) -> dict[str, Any]:
        defaults = self.defaults
        if size is not None and is_large(size):
            is_tuned = "lr" in settings
            defaults = {**(self.large or defaults), **({} if is_tuned else self.untuned)}
        return merge_options(self.method.options_type, defaults, options)


METHODS = Registry(
    "method",
    {
        "source": MethodEntry("the model as it is, without adaptation", Source),
        "tta": MethodEntry("average the predictions over views, without adaptation", TTA),
        # Chosen on validation corruptions and clean images by studies.choose_restorations and .choose_step.
        "restore": MethodEntry(
            "remove noise, blur, blocks and haze, average the predictions over views, without adaptation",
            TTA,
            {"augment": "restore", "n_views": 12, "early_views": 2, "early_confidence": 0.95},
            large={
                "augment": "restore",
                "n_views": 4,
                "clean_views": 3,
                "prior_strength": 16,
                "weighting": "shift",
                "skip_margin": 0.8,
            },
        ),
        "zero": MethodEntry(
            "let the surest tenth of the views vote (ZERO), without adaptation",
            TTA,
            {"augment": "standard", "n_views": 64, "predict": "vote"},
        ),
        "bn1": MethodEntry("mix batch-norm statistics with those of the image, N = 16", BatchNorm),
        "bn": MethodEntry(
            "mix batch-norm statistics with those of 256 images, N = 256",
            BatchNorm,
            {"prior_strength": 256, "batch_size": 256},
        ),
        "tent": MethodEntry("minimise the entropy of batches of 64 images, norm layers, online", Tent),
        "tent-episodic": MethodEntry(
            "tent, reset to the source model after every batch", Tent, {"online": False}
        ),
        "tent-all": MethodEntry("tent on all parameters, online", Tent, {"params": "all"}),
        "tent-bs1": MethodEntry(
            "tent on one image at a time, episodic, N = 16",
            Tent,
            {"online": False, "batch_size": 1, "prior_strength": 16},
        ),
        "eta": MethodEntry(
            "tent on images that are reliable and not redundant (EATA without its Fisher regulariser)",
            ETA,
            large={"redundancy": 0.05},
        ),
        "sar": MethodEntry("tent on reliable images, towards flat minima, with recovery (SAR)", SAR),
        "deyo": MethodEntry(
            "tent on reliable images whose prediction drops when their patches are shuffled (DeYO)", DeYO
        ),
        "cotta": MethodEntry(
            "learn from an averaged teacher, all parameters, with random restoration, online (CoTTA)",
            CoTTA,
            large={"optimizer": "sgd", "lr": 0.01, "restore_share": 0.001, "augment_below": 0.1},
        ),
        "t3a": MethodEntry(
            "classify features by prototypes that confident images move (T3A); needs a linear last layer", T3A
        ),
        "lame": MethodEntry(
            "predict images of a batch alike if their features are (LAME); needs a linear last layer", LAME
        ),
        "recenter": MethodEntry(
            "subtract the running mean of the features (NEO); needs a linear last layer", Recenter
        ),
        "ttt": MethodEntry(
            "minimise the rotation loss of rotated views; needs a model trained with --joint", TTT
        ),
        "memo": MethodEntry(
            "minimise the marginal entropy of the views, all parameters", Memo, untuned=UNTUNED_MEMO
        ),
        # Chosen on validation corruptions by studies.last_blocks and studies.memo_fast.
        "memo-fast": MethodEntry(
            "memo with few views on the last blocks, or the source prediction if it is confident",
            Memo,
            {"n_views": 16, "params": "last:8", "skip_confidence": 0.98},
            large={"n_views": 8, "params": "last:8", "skip_margin": 0.8},
            untuned=UNTUNED_MEMO,
        ),
        "memo-pce": MethodEntry(
            "memo with pairwise cross entropy as the objective",
            Memo,
            {"objective": "pairwise_cross_entropy"},
            untuned=UNTUNED_MEMO,
        ),
        "memo-ce": MethodEntry(
            "memo with conditional entropy as the objective",
            Memo,
            {"objective": "conditional_entropy"},
            untuned=UNTUNED_MEMO,
        ),
    },
)


def method(name: str, classifier: Classifier, **options: Any) -> Method[Any]:
    """Build a method by its name in `METHODS`; `memo methods NAME` lists its options."""
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
