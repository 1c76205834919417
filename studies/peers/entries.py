"""Ways to predict with this package and its peers, each used as its documentation says."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import memo_tta as mt
from memo_tta.bench.torchvision_import import import_torchvision
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier

Predict = Callable[[Tensor], Tensor]  # from normalised inputs [N, 3, H, W] to logits [N, K]


@dataclass(frozen=True)
class Entry:
    """One way to predict; `build` gets the model and a batch of clean images that are not evaluated."""

    package: str
    code: str  # as on the page
    build: Callable[[Classifier, Tensor], Predict]
    batch: int = 1  # images that are given at once when errors are measured


class Engine:
    """An engine of torch-ttt that keeps its last loss."""

    def __init__(self, engine: Callable[[Tensor], tuple[Tensor, Tensor]]):
        self.engine = engine
        self.loss: float | None = None

    def __call__(self, x: Tensor) -> Tensor:
        logits, loss = self.engine(x)
        self.loss = float(loss.detach())
        return logits


def _own(name: str, classifier: Classifier, _clean: Tensor) -> Predict:
    return mt.method(name, classifier)


def _engine(name: str, options: dict[str, Any], classifier: Classifier, clean: Tensor) -> Predict:
    """Build an engine by its class name; options that are a key of LAYERS become the name of that layer."""
    import_torchvision()
    file = name.removesuffix("Engine").lower().replace("tttpp", "ttt_pp").replace("maskedttt", "masked_ttt")
    modules = list(classifier.module.named_modules())
    layers = {key: [at for at, part in modules if key in type(part).__name__][-1] for key in LAYERS}
    given = {
        key: layers.get(value, value) if isinstance(value, str) else value for key, value in options.items()
    }
    engine = getattr(import_module(f"torch_ttt.engine.{file}_engine"), name)(classifier.module, **given)
    if hasattr(engine, "compute_statistics"):
        engine.compute_statistics([(clean,)])
    engine.eval()
    return Engine(engine)


def _ttach(alias: str, sizes: tuple[int, ...], classifier: Classifier, _clean: Tensor) -> Predict:
    ttach = import_module("ttach")
    wrapper = ttach.ClassificationTTAWrapper(classifier.module, getattr(ttach.aliases, alias)(*sizes))
    return torch.no_grad()(wrapper.eval())


def _torch_ttt(name: str, batch: int = 1, **options: Any) -> Entry:
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    code = f"{name}(model, {shown})"
    for layer, word in LAYERS.items():
        code = code.replace(repr(layer), word)
    return Entry("torch-ttt", code, partial(_engine, name, options), batch)


def _crops(alias: str, *sizes: int) -> Entry:
    code = f"ClassificationTTAWrapper(model, aliases.{alias}({', '.join(map(str, sizes))}))"
    return Entry("ttach", code, partial(_ttach, alias, sizes))


LAYERS = {
    "Linear": "last_linear_layer",
    "Norm": "last_norm_layer",
}  # by a part of the class's name, and as shown
BATCHES = {"bn": 64, "tent": 64, "tent-episodic": 64, "tent-all": 64}
OWN = {
    name: Entry("memo-tta", f'mt.method("{name}", classifier)', partial(_own, name), BATCHES.get(name, 1))
    for name in METHODS
}
# The options are those of the README and of the classes' docstrings. "32 views" has the paper's numbers of
# views and steps, and "norm layer" compares feature maps, as ActMAD's paper does; both have a smaller rate.
ENGINES = {
    "MemoEngine": _torch_ttt("MemoEngine", optimization_parameters={"lr": 1e-3}, n_augmentations=4),
    "MemoEngine, 32 views": _torch_ttt(
        "MemoEngine", optimization_parameters={"lr": 1e-4, "num_steps": 1}, n_augmentations=32
    ),
    "TentEngine": _torch_ttt("TentEngine", 64, optimization_parameters={"lr": 2e-3, "num_steps": 1}),
    "EataEngine": _torch_ttt("EataEngine", 64, optimization_parameters={"lr": 1e-3}),
    "DeYOEngine": _torch_ttt("DeYOEngine", 64, optimization_parameters={"lr": 1e-3}),
    "ActMADEngine": _torch_ttt("ActMADEngine", 64, features_layer_names="Linear"),
    "ActMADEngine, norm layer": _torch_ttt(
        "ActMADEngine", 64, features_layer_names="Norm", optimization_parameters={"lr": 1e-3}
    ),
    "TTTEngine": _torch_ttt("TTTEngine", features_layer_name="Linear"),
    "TTTPPEngine": _torch_ttt("TTTPPEngine", 64, features_layer_name="Linear"),
    "IT3Engine": _torch_ttt("IT3Engine", features_layer_name="Linear"),
    "MaskedTTTEngine": _torch_ttt("MaskedTTTEngine", mask_token_id=0, features_layer_name="Linear"),
}
WRAPPERS = {
    "five crops, as in the README": _crops("five_crop_transform"),
    "flip": _crops("hflip_transform"),
    "five crops": _crops("five_crop_transform", 28, 28),
    "ten crops": _crops("ten_crop_transform", 28, 28),
}
ENTRIES = {**OWN, **ENGINES, **WRAPPERS}
