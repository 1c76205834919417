"""The overhead of a MEMO prediction over its forward and backward passes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.models.networks.resnet import resnet50
from memo_tta.models.networks.resnet26 import ResNet26

BAR = 1.05


@dataclass(frozen=True)
class AdaptationCase:
    """A model and the settings of its prediction."""

    name: str
    build: Callable[[], nn.Module]
    size: int
    views: int
    prior_strength: float | None
    rounds: int


CASES = (
    AdaptationCase("ResNet-26", ResNet26, 32, 32, None, 40),
    AdaptationCase("ResNet-50", resnet50, 224, 16, 16, 5),
)


def run() -> Iterator[Measurement]:
    for case in CASES:
        yield _compare(case)


def _compare(case: AdaptationCase) -> Measurement:
    """Compare on channels-last views for both sides, so that the memory layout makes no difference."""
    torch.manual_seed(0)
    module = case.build().eval()
    half = (0.5,) * 3
    classifier = mt.Classifier(module, size=case.size, mean=half, std=half, channels_last=True)
    robust = mt.Memo(classifier, n_views=case.views, lr=0.005, prior_strength=case.prior_strength)
    x, views = (torch.randn(count, 3, case.size, case.size) for count in (1, case.views))
    bare_x, bare_views = classifier.prepare_input(x), classifier.prepare_input(views)
    parameters = list(module.parameters())

    def bare() -> None:
        """Run one forward and backward pass on the views, and one forward pass on the image."""
        loss = mt.objectives.marginal_entropy(module(bare_views))
        torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            module(bare_x)

    seconds = interleaved(case.rounds, bare=bare, memo=lambda: robust.predict_views(x, views))
    return Measurement(
        f"one MEMO prediction / its bare work, {case.name}",
        ratio(seconds, "memo", "bare"),
        BAR,
        "x",
        f"B = {case.views}, {torch.get_num_threads()} threads: "
        f"{1000 * median(seconds['memo']):.0f} ms / {1000 * median(seconds['bare']):.0f} ms",
    )
