"""MEMO for several points at once: each has its own weights, and all share the passes, by `torch.func.vmap`.

On a GPU this fills the device where one point would not. On a CPU it takes longer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from memo_tta.errors import ConfigError
from memo_tta.models.classifier import Classifier

# Values that the options must have: one step of plain SGD on all views, and no gate that needs views.
NEEDED: Mapping[str, Sequence[Any]] = {
    "optimizer": ("sgd",),
    "momentum": (0,),
    "weight_decay": (0,),
    "steps": (1,),
    "reset": ("always",),
    "predict": ("point", "with_source"),
    "precision": ("float32",),
    "weighting": ("uniform",),
    "micro_batch": (None,),
    "early_views": (None,),
    "threshold": (None,),
    "select": (None,),
}


@dataclass(frozen=True)
class AdaptedPoints:
    """What MEMO gives for several points: logits (points, classes), and which steps were finite (points,)."""

    view_logits: Tensor  # before the step, (points, views, classes)
    logits: Tensor
    is_finite: Tensor


def check_options(options: Any, mixes: bool) -> None:
    """Raise ConfigError if these options cannot be computed for several points at once."""
    for name, values in NEEDED.items():
        if getattr(options, name) not in values:
            wanted = " or ".join(map(repr, values))
            raise ConfigError(f"batch_points: MEMO on several images at once needs {name}={wanted}")
    if mixes:
        raise ConfigError(
            "batch_points: MEMO on several images at once cannot mix batch-norm statistics: "
            "set prior_strength=None"
        )


def adapt_together(
    classifier: Classifier,
    names: Sequence[str],
    objective: Callable[[Tensor], Tensor],
    lr: Sequence[float],
    views: Tensor,
    x: Tensor,
) -> AdaptedPoints:
    """Take one step for each point, on its views (points, views, ...), and predict it, (points, 1, ...)."""
    module = classifier.module
    source = dict(module.named_parameters())
    adapted = {name: source[name].detach() for name in names}

    def logits_of(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(module, weights, (inputs,))

    def loss_and_logits(weights: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_of(weights, inputs)
        return objective(logits), logits

    def prepared(inputs: Tensor) -> Tensor:
        flat = classifier.prepare_input(inputs.flatten(0, 1))
        return flat.reshape(*inputs.shape[:2], *flat.shape[1:])

    gradients, before = vmap(grad(loss_and_logits, has_aux=True), (None, 0))(adapted, prepared(views))
    rates = torch.tensor(lr, device=x.device)
    is_finite = torch.stack([g.flatten(1).isfinite().all(dim=1) for g in gradients.values()]).all(dim=0)
    stepped = {
        name: weight - rates.to(weight).reshape(-1, *[1] * weight.ndim) * gradients[name]
        for name, weight in adapted.items()
    }
    with torch.no_grad():
        after = vmap(logits_of)(stepped, prepared(x))
    return AdaptedPoints(before.detach(), after[:, 0], is_finite)
