"""The linear layer whose output is a model's logits, and its input: the features of an image."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from memo_tta.errors import ModelError
from memo_tta.interrupts import undoing
from memo_tta.models.classifier import Classifier

INSTEAD = "use a method that needs none, such as source, tta or restore"


@dataclass(frozen=True)
class LastLayer:
    """A linear layer of float32 weights (classes, width), and its input (inputs, width) of one pass."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None

    def logits(self, features: Tensor) -> Tensor:
        """Return the layer's logits (n, classes) of features (n, width)."""
        return linear(features, self.weight, self.bias)

    def of_inputs(self, chosen: Tensor) -> "LastLayer":
        """Return the same layer with the features of these inputs, a mask, alone."""
        return LastLayer(self.features[chosen], self.weight, self.bias)


class LastLayerRecorder:
    """Record which linear layer of a classifier runs last in a forward pass, with its input and output."""

    def __init__(self, classifier: Classifier):
        self._classifier = classifier
        self._layers = [layer for layer in classifier.module.modules() if isinstance(layer, nn.Linear)]
        if not self._layers:
            raise ModelError(f"{classifier.name}: has no linear layer that makes its logits: {INSTEAD}")
        self._last: tuple[nn.Linear, Tensor, Tensor] | None = None

    def attach(self) -> None:
        """Start recording, by a forward hook on each linear layer."""
        self._last = None
        for layer in self._layers:
            layer.register_forward_hook(self._record)

    def detach(self) -> None:
        """Stop recording."""
        for layer in self._layers:
            hooks = layer._forward_hooks
            for key in [key for key, hook in hooks.items() if hook == self._record]:
                hooks.pop(key, None)

    def take(self, logits: Tensor) -> LastLayer | None:
        """Return the last layer of the pass that gave these logits; None if there was no pass."""
        if self._last is None:
            return None
        (layer, features, output), self._last = self._last, None
        if not self._makes(output, logits):
            raise ModelError(
                f"{self._classifier.name}: its logits are not the output of its last linear layer: {INSTEAD}"
            )
        weight = self._classes_of(layer.weight.detach().T).T
        bias = None if layer.bias is None else self._classes_of(layer.bias.detach()[None])[0]
        return LastLayer(features.float(), weight.float(), None if bias is None else bias.float())

    def _makes(self, output: Tensor, logits: Tensor) -> bool:
        """Return whether the output of a layer is the logits, of all classes or of the subset's."""
        try:
            chosen = self._classes_of(output)
        except IndexError:  # fewer dimensions or columns than logits have
            return False
        return chosen.shape == logits.shape and torch.allclose(chosen, logits, 0, 0, equal_nan=True)

    def _classes_of(self, rows: Tensor) -> Tensor:
        return self._classifier.select_classes(rows)

    def _record(self, layer: nn.Linear, inputs: tuple[Any, ...], output: Tensor) -> None:
        self._last = layer, inputs[0].detach(), output.detach()


@contextmanager
def recording_last_layer(recorder: LastLayerRecorder) -> Iterator[None]:
    """Record forward passes within a `with` block."""
    with undoing(recorder.detach):
        recorder.attach()
        yield
