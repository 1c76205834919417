"""Predict with one entry on one model: python -m studies.peers.measurement --help.

Prints predictions, time and peak memory as JSON. The bare model and the entry take turns, batch by batch, so
that other load on the machine affects both.
"""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, nn

import memo_tta as mt
from memo_tta.bench.measurement import peak_kib
from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset
from studies.peers.checks import clean_inputs
from studies.peers.entries import ENTRIES, Predict

CORRUPTIONS, LEVELS = ("gaussian_noise", "fog", "contrast"), (3, 5)
BLOCK = 20  # images whose times make one ratio, or one batch if it has more


def parts(limit: int) -> list[Dataset]:
    """Return the clean images and their corrupted copies."""
    found = [*load_parts("sample"), *load_parts("sample", CORRUPTIONS, LEVELS)]
    return [part.take(range(limit)) for part in found]


def measure(module: nn.Module, predict: Predict, x: Tensor, batch: int) -> dict[str, Any]:
    """Return the predictions of inputs, and one ratio of the entry's time to the bare model's per block."""
    predictions: list[int] = []
    seconds: list[tuple[float, float]] = []
    for rows in torch.split(x, batch):
        before = perf_counter()
        _bare(module, rows)
        between = perf_counter()
        logits = predict(rows)
        seconds.append((between - before, perf_counter() - between))
        predictions += logits.detach().argmax(1).tolist()
    return {"predictions": predictions, "blocks": list(_blocks(seconds, max(1, BLOCK // batch)))}


def _blocks(seconds: list[tuple[float, float]], size: int) -> Iterator[tuple[float, float]]:
    """Yield the ratio of each block of batches, and the bare model's seconds."""
    for start in range(0, len(seconds), size):
        bare, entry = np.sum(seconds[start : start + size], axis=0)
        yield float(entry / bare), float(bare)


def _bare(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return module.eval()(x)


@click.command(help=__doc__)
@click.argument("model")
@click.argument("name", type=click.Choice(list(ENTRIES)))
@click.argument("limit", type=int)
def main(model: str, name: str, limit: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry, found = ENTRIES[name], {}
    bare, classifier = mt.load(model), mt.load(model)  # the entry may change its own
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict = entry.build(classifier, clean_inputs(classifier))
        predict(clean_inputs(classifier)[: entry.batch])  # warm up
        for part in parts(limit):
            x = torch.stack([bare.point(sample.image).x for sample in part])
            result = measure(bare.module, predict, x, entry.batch)
            wrong = np.array(result.pop("predictions")) != part.targets
            result["wrong"] = np.packbits(wrong).tobytes().hex()
            found[f"{part.corruption} {part.severity}".strip()] = result
    click.echo(json.dumps({"points": limit, "batch": entry.batch, "parts": found, "peak_kib": peak_kib()}))


if __name__ == "__main__":
    main()
