"""A MEMO prediction, from image to label, against the published loop; and its time over B."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch
from safetensors.torch import save_file

import memo_tta as mt
from memo_tta.bench import evaluation
from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.bench.published_loop import PaperLoop
from memo_tta.data.sample_images import load_sample
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.models.networks.resnet26 import ResNet26

THREADS, ROUNDS, VIEWS, LR = 2, 25, 32, 0.005
BATCHES = (4, 8, 16, 32, 64, 128)
LOOP_BAR, WORKERS_BAR, LINE_BAR = 1 / 1.5, 1 / 2.2, 1.1


def run() -> Iterator[Measurement]:
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield _against_the_loop()
        yield _workers()
        yield _over_views()
    finally:
        torch.set_num_threads(threads)


def loop(views: int) -> PaperLoop:
    torch.manual_seed(0)
    return PaperLoop(ResNet26(), 32, views, LR)


def ours(views: int) -> mt.Memo:
    torch.manual_seed(0)
    classifier = mt.Classifier(
        ResNet26().eval(), size=32, mean=(0.5,) * 3, std=(0.5,) * 3, channels_last=True
    )
    return mt.Memo(classifier, n_views=views, lr=LR, prior_strength=None)


def image() -> np.ndarray:
    return load_sample()[0].image


def _against_the_loop() -> Measurement:
    published, robust, picture = loop(VIEWS), ours(VIEWS), image()
    rng, ids = np.random.default_rng(0), count()
    seconds = interleaved(
        ROUNDS,
        ours=lambda: robust.predict(picture, sample_id=next(ids)),
        loop=lambda: published.predict(picture, rng),
    )
    measured = ratio(seconds, "ours", "loop")
    times = (1000 * median(seconds[name]) for name in ("ours", "loop"))
    detail = "ResNet-26, B = {}, {} threads: {:.0f} ms / {:.0f} ms, {:.2f} times as fast"
    return Measurement(
        "one MEMO prediction / the published loop",
        measured,
        LOOP_BAR,
        "x",
        detail.format(VIEWS, THREADS, *times, 1 / measured),
    )


def _workers() -> Measurement:
    """Both before and after the workers' turn: what else the machine does changes slowly."""
    published, picture, rng = loop(VIEWS), image(), np.random.default_rng(0)
    points = evaluation.WORKER_POINTS

    def loop_seconds() -> float:
        began = perf_counter()
        for _ in range(points // 4):
            published.predict(picture, rng)
        return 4 * (perf_counter() - began)

    loop_seconds()
    before = loop_seconds()
    workers = _worker_seconds()
    baseline = (before + loop_seconds()) / 2
    rates = f"{points / workers:.1f} / {points / baseline:.1f} points/s"
    detail = f"ResNet-26, B = {VIEWS}, 2 workers / {THREADS} threads: {rates}"
    return Measurement(
        "time of memo evaluate / the published loop", workers / baseline, WORKERS_BAR, "x", detail
    )


def _worker_seconds() -> float:
    with TemporaryDirectory() as folder:
        weights = Path(folder) / "random.safetensors"
        torch.manual_seed(0)
        save_file(ResNet26().state_dict(), weights)
        job = EvaluationJob(data=("sample",), model="resnet26", weights=str(weights), methods=("memo",))
        return evaluation.by_workers(job, 2)


def _over_views() -> Measurement:
    """The worst of all B, as a multiple of the straight line through the smallest and the largest."""
    robust, picture, ids = {views: ours(views) for views in BATCHES}, image(), count()

    def predict(views: int) -> None:
        robust[views].predict(picture, sample_id=next(ids))

    seconds = interleaved(8, **{str(views): partial(predict, views) for views in BATCHES})
    times = {views: median(seconds[str(views)]) for views in BATCHES}
    first, last = BATCHES[0], BATCHES[-1]
    slope = (times[last] - times[first]) / (last - first)
    worst = max(time / (times[first] + slope * (views - first)) for views, time in times.items())
    shown = ", ".join(f"{views}: {1000 * time:.0f}" for views, time in times.items())
    return Measurement(
        "time over B / a straight line", worst, LINE_BAR, "x", f"ResNet-26, ms for each B: {shown}"
    )
