"""The exact gradient over all views, with the memory of all of them or of one chunk."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from memo_tta.errors import ModelError
from memo_tta.methods.update import UpdateRule

NOT_FINITE = "the loss or its gradient is not finite"

Forward = Callable[[Tensor], Tensor]


class ViewGradient:
    """Logits of views, then the gradient of any loss of those logits.

    In chunks: the first pass keeps only the logits; d loss / d logits is exact, as the loss sees all
    views; each chunk then runs again with gradients and takes its part back to the parameters.
    """

    def __init__(self, forward: Forward, views: Tensor, micro_batch: int | None):
        self.views = views
        self._forward = forward
        self._chunks = views.split(micro_batch or len(views))
        if len(self._chunks) == 1:
            self.logits = self._with_graph(views)
        else:
            self.logits = forward_in_chunks(forward, views, micro_batch).requires_grad_()

    def of(self, loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """d loss / d parameters; None for a parameter that the logits do not depend on."""
        if len(self._chunks) == 1:
            return list(torch.autograd.grad(loss, parameters, allow_unused=True))
        (seeds,) = torch.autograd.grad(loss, self.logits)
        total: list[Tensor | None] = [None] * len(parameters)
        for chunk, seed in zip(self._chunks, seeds.split(len(self._chunks[0])), strict=True):
            part = torch.autograd.grad(self._with_graph(chunk), parameters, seed, allow_unused=True)
            _add(total, part)
            del part  # as large as the parameters: not to be held through the next chunk
        return total

    def descend(self, loss: Tensor, parameters: Sequence[Tensor], rule: UpdateRule) -> bool:
        """One step of the rule down the loss; False, and no step, if anything is not finite."""
        gradients = self.of(loss, parameters)
        finite = all_finite([loss, *gradients])
        if finite:
            rule.step(parameters, gradients)
        return finite

    def _with_graph(self, views: Tensor) -> Tensor:
        logits = self._forward(views)
        if not logits.requires_grad:
            raise ModelError("the logits carry no gradient: the chosen parameters do not reach them")
        return logits


def _add(total: list[Tensor | None], part: Sequence[Tensor | None]) -> None:
    for index, gradient in enumerate(part):
        if gradient is not None:
            before = total[index]
            # A gradient may share memory with another one (a batch of one makes sums views).
            total[index] = gradient.clone() if before is None else before.add_(gradient)


@torch.no_grad()
def forward_in_chunks(forward: Forward, views: Tensor, micro_batch: int | None) -> Tensor:
    """Logits of all views without a graph."""
    return torch.cat([forward(chunk) for chunk in views.split(micro_batch or len(views))])


def all_finite(tensors: Sequence[Tensor | None]) -> bool:
    """Whether every value is a number; a missing tensor is no objection."""
    ends = [end for tensor in tensors if tensor is not None for end in tensor.detach().aminmax()]
    return not ends or bool(torch.stack(ends).isfinite().all())
