"""What each method costs with a model of the user's: time and memory, by number of views and of threads.

No data is needed: gates are off, so that every prediction does all its work. An image that a gate stops costs
what `source` costs.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from memo_tta.bench.measurement import Measurement, in_new_process, peak_kib, status_kib
from memo_tta.errors import ConfigError, ModelError
from memo_tta.methods import METHODS
from memo_tta.models.batch_norm import statistics_layers
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.workers import available_cores
from memo_tta.workers.malloc import keep_freed_memory

FORWARD_ONLY = ("source", "restore", "bn1")
WITH_VIEWS = ("tta", "memo-fast", "memo")
VIEWS = (8, 16, 32, 64)
ROUNDS = 3
GATES = ("skip_confidence", "skip_margin", "skip_shift", "early_views", "clean_views")


@dataclass(frozen=True)
class MethodCost:
    """Seconds of a prediction, and the memory that it takes beside the loaded model."""

    method: str
    views: int | None  # None if the method has no such option, or one that does not matter
    threads: int
    seconds: float
    mib: float

    @property
    def measurement(self) -> Measurement:
        views = "" if self.views is None else f", {self.views} views"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        name = f"{self.method}{views}, {threads}"
        return Measurement(name, 1000 * self.seconds, None, "ms", f"takes {self.mib:,.0f} MiB")


def run(model: str, arguments: Mapping[str, Any]) -> Iterator[MethodCost]:
    """Measure every method in a process of its own, with one thread and with as many as there are cores.

    The model is loaded with these arguments of `memo_tta.load`.
    """
    classifier = load(model, **arguments)
    if classifier.size is None:
        raise ConfigError(f"{model}: takes tensors, but this measures images: give its Classifier a size")
    forward_only = [name for name in FORWARD_ONLY if name != "bn1" or statistics_layers(classifier.module)]
    for threads in sorted({1, available_cores()}):
        for method in forward_only:
            yield _in_new_process(model, arguments, method, None, threads)
        for method in filter(partial(_can_use, classifier), WITH_VIEWS):
            for views in VIEWS:
                yield _in_new_process(model, arguments, method, views, threads)


def _can_use(classifier: Classifier, method: str) -> bool:
    """Return whether the model has what the method adapts."""
    try:
        METHODS[method](classifier)
    except ModelError:
        return False
    return True


def _in_new_process(
    model: str, arguments: Mapping[str, Any], method: str, views: int | None, threads: int
) -> MethodCost:
    case = {"model": model, "arguments": arguments, "method": method, "views": views, "threads": threads}
    found = in_new_process("memo_tta.bench.own_model", json.dumps(case))
    return MethodCost(method, views, threads, found["seconds"], found["mib"])


def _measure(
    model: str, arguments: Mapping[str, Any], method: str, views: int | None, threads: int
) -> dict[str, float]:
    """Return seconds and MiB of a prediction, after a first one that loads what is loaded once."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    classifier = load(model, **arguments)
    options: dict[str, Any] = {name: None for name in GATES if name in METHODS[method].declarations}
    robust = METHODS[method](classifier, **options, **({} if views is None else {"n_views": views}))
    assert classifier.preprocessing is not None
    channels, height, width = classifier.preprocessing.shape
    image = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    before = status_kib("VmRSS")
    robust.predict(image)
    seconds: list[float] = []
    for number in range(ROUNDS):
        began = perf_counter()
        robust.predict(image, sample_id=number)
        seconds.append(perf_counter() - began)
    return {"seconds": median(seconds), "mib": max(0, peak_kib() - before) / 2**10}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(**json.loads(sys.argv[1]))))
