"""How much memory a method takes: measured with one image, and multiplied by the number of views."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from memo_tta.errors import MemoError, ModelError
from memo_tta.methods.episode import episode, run_exclusively
from memo_tta.methods.method import Method
from memo_tta.methods.parameters import choose_parameters
from memo_tta.models.classifier import Classifier

PROCESS = 400 * 2**20  # bytes: the interpreter, torch and what they load
# Measured peaks are at most 10 % above what these give: docs/speed.md.
LAYERS_AT_ONCE = 2.3  # a forward pass holds the input and output of the largest layer, and a part of another
COPIES = 3  # of adapted parameters: their source values, gradients, and the work of the step


@dataclass(frozen=True)
class Footprint:
    """Bytes that predictions take beside the process itself."""

    model: int  # parameters and buffers, and the copies of those that are adapted
    view: int  # what each view of a forward pass adds
    views: int  # the most views in one forward pass

    @property
    def total(self) -> int:
        return self.model + self.view * self.views

    def fitting_views(self, limit: int) -> int:
        """Return how many views fit into so many bytes, at least one."""
        return max(1, (limit - self.model) // max(self.view, 1))


def measure_footprint(method: Method[Any], points: int) -> Footprint:
    """Measure a method that is given so many points, by one forward pass of a grey image.

    A classifier of tensors has inputs of any shape, so only its parameters count.
    """
    classifier, options = method.classifier, method.options
    module = classifier.module
    adapted = choose_parameters(module, options.params) if method.needs_gradients else []
    model = _bytes(*module.parameters(), *module.buffers()) + COPIES * _bytes(*adapted)
    views = getattr(options, "n_views", 1) * min(points, method.batch_points)
    micro_batch = getattr(options, "micro_batch", None)
    if classifier.size is None:
        return Footprint(model, 0, views)
    try:
        saved, largest = run_exclusively(module, lambda: _activations(classifier, adapted))
    except MemoError:
        raise
    except Exception as error:  # whatever the user's module raises
        raise ModelError(
            f"{classifier.name}: cannot predict an image of its input size ({type(error).__name__}: {error})"
        ) from error
    view = max(saved + largest, int(LAYERS_AT_ONCE * largest))
    return Footprint(model, view, min(views, micro_batch or views))


def _activations(classifier: Classifier, adapted: list[nn.Parameter]) -> tuple[int, int]:
    """Return the bytes that backward would need, and those of the input and output of the largest layer."""
    saved: dict[int, int] = {}
    largest = 0
    known = {t.data_ptr() for t in (*classifier.module.parameters(), *classifier.module.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    def note_size(_layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal largest
        largest = max(largest, _bytes(*(t for t in (*inputs, output) if isinstance(t, Tensor))))

    hooks = [layer.register_forward_hook(note_size) for layer in classifier.module.modules()]
    try:
        with (
            episode(classifier.module, adapted),
            torch.set_grad_enabled(bool(adapted)),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            assert classifier.preprocessing is not None  # checked by the caller
            output = classifier(
                torch.zeros(1, *classifier.preprocessing.shape)
            )  # held, so that no saved storage is reused
            del output
    finally:
        for hook in hooks:
            hook.remove()
    return sum(saved.values()), largest


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
