"""Measure time and peak memory of methods on models of the zoo: python -m studies.model_costs --help.

Weights are random, as neither depends on them without gates. Each figure comes from a process of its own.
"""

import json
from collections.abc import Sequence
from time import perf_counter

import click
import numpy as np
import torch

from memo_tta.bench.measurement import in_new_process, peak_kib
from memo_tta.class_lists import class_list
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import ZOO

MODELS = ("efficientnet_lite0", "mobilenet_v2", "resnet50", "rvt_small_plus", "resnext101_32x8d")
MEASURED_METHODS = ("source", "bn1", "tta", "memo")


def measure(model: str, method: str) -> tuple[float, int]:
    """Return the seconds of the second prediction, and the peak memory of this process in KiB."""
    entry = ZOO[model]
    torch.manual_seed(0)
    module = entry.build(len(class_list(entry.classes))).eval()
    classifier = Classifier(module, settings=entry.settings, **entry.preprocessing)
    gates = {"skip_margin": None, "skip_shift": None} if method == "memo" else {}
    robust = METHODS[method](classifier, **gates)
    image = np.random.default_rng(0).integers(0, 256, (256, 320, 3), dtype=np.uint8)
    robust.predict(image)
    start = perf_counter()
    robust.predict(image)
    return perf_counter() - start, peak_kib()


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--one", nargs=2, hidden=True, metavar="MODEL METHOD", help="Measure one pair; print JSON.")
def main(models: Sequence[str], one: tuple[str, str] | None) -> None:
    if one is not None:
        click.echo(json.dumps(measure(*one)))
        return
    click.echo("| model | method | seconds a point | peak memory, GiB |\n|---|---|---|---|")
    for model in models or MODELS:
        for method in MEASURED_METHODS:
            seconds, kib = in_new_process("studies.model_costs", "--one", model, method)
            click.echo(f"| {model} | {method} | {seconds:.2f} | {kib / 2**20:.2f} |")


if __name__ == "__main__":
    main()
