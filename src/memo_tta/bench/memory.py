"""Micro-batches against all views at once: memory, and the difference of the gradients."""

import json
import sys
from collections.abc import Iterator

import torch

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, in_new_process, peak_kib
from memo_tta.methods.gradient import ForwardPass
from memo_tta.models.networks.resnet import resnet50

VIEWS, CHUNK, SIZE = 64, 8, 224
MEMORY_BAR, GRADIENT_BAR = 0.25, 1e-5


def run() -> Iterator[Measurement]:
    full, chunked = (in_new_process("memo_tta.bench.memory", micro_batch) for micro_batch in (VIEWS, CHUNK))
    yield Measurement(
        f"extra memory, micro_batch = {CHUNK} / all views",
        chunked / full,
        MEMORY_BAR,
        "x",
        f"ResNet-50, B = {VIEWS}, {SIZE} pixels: {chunked / 2**20:.2f} GiB / {full / 2**20:.2f} GiB",
    )
    yield Measurement(
        "gradients of both, relative difference",
        _gradient_difference(),
        GRADIENT_BAR,
        "",
        f"ResNet-50, B = {VIEWS}, 96 pixels, float32, L2 over all parameters",
    )


def _classifier(size: int) -> mt.Classifier:
    torch.manual_seed(0)
    return mt.Classifier(resnet50().eval(), size=size, mean=(0.5,) * 3, std=(0.5,) * 3)


def _extra_memory(micro_batch: int) -> int:
    """Return by how many KiB one prediction raises the peak memory of this process."""
    robust = mt.Memo(_classifier(SIZE), micro_batch=micro_batch)
    x, views = torch.randn(1, 3, SIZE, SIZE), torch.randn(VIEWS, 3, SIZE, SIZE)
    before = peak_kib()
    robust.predict_views(x, views)
    return peak_kib() - before


def _gradient_difference() -> float:
    """Return the L2 norm of the difference, relative to that of the gradient on all views."""
    classifier = _classifier(96)
    parameters = list(classifier.module.parameters())
    views = torch.randn(VIEWS, 3, 96, 96)
    gradients: list[torch.Tensor] = []
    for micro_batch in (None, CHUNK):
        forward = ForwardPass(classifier, views, micro_batch)
        loss = mt.objectives.marginal_entropy(forward.logits)
        found = forward.gradient(loss, parameters)
        gradients.append(torch.cat([g.flatten() for g in found if g is not None]))
    full, chunked = gradients
    return float((chunked - full).norm() / full.norm())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_extra_memory(int(sys.argv[1]))))
