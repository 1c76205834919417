"""Time per point and peak memory of methods on the zoo's models: python -m studies.model_costs [MODEL...].

Weights are random: neither depends on them. Each figure comes from a process of its own.
"""

import json
import sys
from time import perf_counter

import numpy as np
import torch

from memo_tta.bench.measurement import in_new_process, peak_kib
from memo_tta.class_lists import class_list
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import ZOO

MODELS = ("efficientnet_lite0", "mobilenet_v2", "resnet50", "rvt_small_plus", "resnext101_32x8d")
TRIED = ("source", "bn1", "tta", "memo")


def measure(model: str, method: str) -> tuple[float, int]:
    """Seconds of the second prediction, and KiB at the peak of the process."""
    entry = ZOO[model]
    torch.manual_seed(0)
    module = entry.build(len(class_list(entry.classes))).eval()
    classifier = Classifier(module, settings=entry.settings, **entry.preprocessing)
    robust = METHODS[method](classifier)
    image = np.random.default_rng(0).integers(0, 256, (256, 320, 3), dtype=np.uint8)
    robust.predict(image)
    began = perf_counter()
    robust.predict(image)
    return perf_counter() - began, peak_kib()


def main(models: list[str]) -> None:
    sys.stdout.write("| model | method | seconds a point | peak memory, GiB |\n|---|---|---|---|\n")
    for model in models or MODELS:
        for method in TRIED:
            seconds, kib = in_new_process("studies.model_costs", "--one", model, method)
            sys.stdout.write(f"| {model} | {method} | {seconds:.2f} | {kib / 2**20:.2f} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(*sys.argv[2:])))
    else:
        main(sys.argv[1:])
