"""MEMO on the last blocks against MEMO on all parameters, with the same views: time and memory."""

import json
import sys
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import nn

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, in_new_process, interleaved, peak_kib, ratio, status_kib
from memo_tta.models.networks.efficientnet_lite import efficientnet_lite0
from memo_tta.models.networks.resnet import resnet50
from memo_tta.workers.malloc import keep_freed_memory

CASES: dict[str, Callable[[int], nn.Module]] = {
    "EfficientNet-Lite0": efficientnet_lite0,
    "ResNet-50": resnet50,
}
SIZE, CLASSES, VIEWS, ROUNDS = 224, 1000, 16, 3
LAST = "last:4"
TIME_BAR, MEMORY_BAR = 0.55, 0.35


def run() -> Iterator[Measurement]:
    for name in CASES:
        yield Measurement(**in_new_process("memo_tta.bench.last_blocks", "time", name))
        last, everything = (in_new_process("memo_tta.bench.last_blocks", p, name) for p in (LAST, "all"))
        yield Measurement(
            f"extra memory of memo, {LAST} / all parameters, {name}",
            last / everything,
            MEMORY_BAR,
            "x",
            f"B = {VIEWS}: {last / 2**10:,.0f} / {everything / 2**10:,.0f} MiB",
        )


def build_memo(name: str, params: str) -> mt.Memo:
    """Return MEMO on a network with random weights."""
    torch.manual_seed(0)
    half = (0.5,) * 3
    module = CASES[name](CLASSES).eval()
    classifier = mt.Classifier(module, size=SIZE, mean=half, std=half, channels_last=True)
    return mt.Memo(classifier, n_views=VIEWS, params=params)


def _measure_time(name: str) -> Measurement:
    keep_freed_memory()
    x, views = torch.randn(1, 3, SIZE, SIZE), torch.randn(VIEWS, 3, SIZE, SIZE)
    last, everything = (build_memo(name, params) for params in (LAST, "all"))
    seconds = interleaved(
        ROUNDS,
        last=lambda: last.predict_views(x, views),
        everything=lambda: everything.predict_views(x, views),
    )
    return Measurement(
        f"time of memo, {LAST} / all parameters, {name}",
        ratio(seconds, "last", "everything"),
        TIME_BAR,
        "x",
        f"B = {VIEWS}, {torch.get_num_threads()} threads: {median(seconds['last']):.2f} / "
        f"{median(seconds['everything']):.2f} s",
    )


def _extra_kib(name: str, params: str) -> int:
    """Return by how much one prediction raises the peak memory of this process."""
    robust = build_memo(name, params)
    x, views = torch.randn(1, 3, SIZE, SIZE), torch.randn(VIEWS, 3, SIZE, SIZE)
    before = status_kib("VmRSS")
    robust.predict_views(x, views)
    return peak_kib() - before


if __name__ == "__main__":
    what, network = sys.argv[1:]
    found = vars(_measure_time(network)) if what == "time" else _extra_kib(network, what)
    sys.stdout.write(json.dumps(found))
