"""Exact gradients over all views, with the memory of all of them or of one chunk at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from memo_tta.errors import ModelError
from memo_tta.methods.update import UpdateRule

NOT_FINITE = "the loss or its gradient is not finite"

Forward = Callable[[Tensor], Tensor]


class ForwardPass:
    """Logits of views, and the gradient of any loss of those logits.

    With `micro_batch`, the first pass stores only the logits. d loss / d logits is exact, because the loss
    sees all views; each chunk is then run again with a graph to propagate its part to the parameters.
    """

    def __init__(self, forward: Forward, views: Tensor, micro_batch: int | None):
        self.views = views
        self._forward = forward
        self._chunks = torch.split(views, micro_batch or len(views))
        if len(self._chunks) == 1:
            self.logits = self._with_graph(views)
        else:
            self.logits = forward_in_chunks(forward, views, micro_batch).requires_grad_()

    def gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """Return d loss / d parameters; None for a parameter that does not affect the logits."""
        if len(self._chunks) == 1:
            return list(torch.autograd.grad(loss, parameters, allow_unused=True))
        (logits_gradient,) = torch.autograd.grad(loss, self.logits)
        total: list[Tensor | None] = [None] * len(parameters)
        parts = torch.split(logits_gradient, len(self._chunks[0]))
        for chunk, part in zip(self._chunks, parts, strict=True):
            gradients = torch.autograd.grad(self._with_graph(chunk), parameters, part, allow_unused=True)
            _accumulate(total, gradients)
            del gradients  # as large as the parameters: freed before the next chunk
        return total

    def descend(self, loss: Tensor, parameters: Sequence[Tensor], rule: UpdateRule) -> bool:
        """Take one step of the rule; return False, without a step, if loss or gradients are not finite."""
        gradients = self.gradient(loss, parameters)
        is_finite = all_finite([loss, *gradients])
        if is_finite:
            rule.step(parameters, gradients)
        return is_finite

    def _with_graph(self, views: Tensor) -> Tensor:
        logits = self._forward(views)
        if not logits.requires_grad:
            raise ModelError(
                "params: the logits do not depend on the chosen parameters: choose others, "
                "or a method that adapts none, such as source, tta or restore"
            )
        return logits


def _accumulate(total: list[Tensor | None], gradients: Sequence[Tensor | None]) -> None:
    for index, gradient in enumerate(gradients):
        if gradient is not None:
            before = total[index]
            # Cloned, as a gradient may share memory with another one (with a batch of one, sums are views).
            total[index] = gradient.clone() if before is None else before.add_(gradient)


@torch.no_grad()
def forward_in_chunks(forward: Forward, views: Tensor, micro_batch: int | None) -> Tensor:
    """Return the logits of all views, computed without a graph in chunks of `micro_batch`."""
    return torch.cat([forward(chunk) for chunk in torch.split(views, micro_batch or len(views))])


def all_finite(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether all values are finite; None is ignored."""
    extremes = [end for tensor in tensors if tensor is not None for end in tensor.detach().aminmax()]
    return not extremes or bool(torch.stack(extremes).isfinite().all())
