"""One MEMO prediction against the bare work that it contains."""

from collections.abc import Iterator
from statistics import median

import torch

import memo_tta as mt
from benchmarks.measure import Row, interleaved, ratio
from memo_tta.models.resnet_cifar import ResNet26

VIEWS, ROUNDS, BAR = 32, 40, 1.10


def run() -> Iterator[Row]:
    torch.manual_seed(0)
    module = ResNet26().eval()
    classifier = mt.Classifier(module, size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
    robust = mt.Memo(classifier, n_views=VIEWS, lr=0.005, prior_strength=None)
    x, views = torch.randn(1, 3, 32, 32), torch.randn(VIEWS, 3, 32, 32)
    parameters = list(module.parameters())

    def bare() -> None:
        loss = mt.objectives.marginal_entropy(module(views))
        torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            module(x)

    seconds = interleaved(ROUNDS, bare=bare, memo=lambda: robust.predict_views(x, views))
    yield Row(
        "one MEMO prediction / its bare work",
        ratio(seconds, "memo", "bare"),
        BAR,
        "x",
        f"ResNet-26, B = {VIEWS}, {torch.get_num_threads()} threads: "
        f"{1000 * median(seconds['memo']):.0f} ms / {1000 * median(seconds['bare']):.0f} ms",
    )
