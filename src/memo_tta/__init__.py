"""Test-time robustness for any PyTorch classifier, one input at a time (MEMO)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memo_tta import methods as methods
    from memo_tta import objectives as objectives
    from memo_tta.api.advice import advise as advise
    from memo_tta.api.corruption import corrupt as corrupt
    from memo_tta.api.corruption import get_corruption_names as get_corruption_names
    from memo_tta.api.evaluation import evaluate as evaluate
    from memo_tta.api.results import Results as Results
    from memo_tta.data.catalog import load_dataset as load_dataset
    from memo_tta.errors import MemoError as MemoError
    from memo_tta.errors import MemoWarning as MemoWarning
    from memo_tta.methods import Memo as Memo
    from memo_tta.methods import Prediction as Prediction
    from memo_tta.methods import Status as Status
    from memo_tta.methods import method as method
    from memo_tta.models.classifier import Classifier as Classifier
    from memo_tta.models.zoo import load as load
    from memo_tta.views import AugMix as AugMix
    from memo_tta.views import CropFlip as CropFlip
    from memo_tta.views import per_view as per_view

__version__ = "0.1.0"

# The module of each public name; None: the name is a module. Names are imported on first use, so that
# `memo --help` does not import torch.
_MODULES = {
    "AugMix": "views",
    "Classifier": "models.classifier",
    "CropFlip": "views",
    "Memo": "methods",
    "MemoError": "errors",
    "MemoWarning": "errors",
    "Prediction": "methods",
    "Results": "api.results",
    "Status": "methods",
    "advise": "api.advice",
    "corrupt": "api.corruption",
    "evaluate": "api.evaluation",
    "get_corruption_names": "api.corruption",
    "load": "models.zoo",
    "load_dataset": "data.catalog",
    "method": "methods",
    "methods": None,
    "objectives": None,
    "per_view": "views",
}
__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    value = (
        import_module(f"{__name__}.{name}")
        if module is None
        else getattr(import_module(f"{__name__}.{module}"), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
