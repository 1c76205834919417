"""Time of a MEMO prediction, from image to label: against the published loop, and by number of views B."""

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
from memo_tta.bench.published_loop import PublishedLoop
from memo_tta.data.sample_images import load_sample
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.models.networks.resnet26 import ResNet26

THREADS, ROUNDS, VIEWS, LR = 2, 25, 32, 0.005
N_VIEWS = (4, 8, 16, 32, 64, 128)
LOOP_BAR, WORKERS_BAR, LINE_BAR = 1 / 1.5, 1 / 2.2, 1.1


def run() -> Iterator[Measurement]:
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield _compare_with_loop()
        yield _compare_workers_with_loop()
        yield _compare_with_line()
    finally:
        torch.set_num_threads(threads)


def published_loop(views: int) -> PublishedLoop:
    torch.manual_seed(0)
    return PublishedLoop(ResNet26(), 32, views, LR)


def our_memo(views: int) -> mt.Memo:
    torch.manual_seed(0)
    classifier = mt.Classifier(
        ResNet26().eval(), size=32, mean=(0.5,) * 3, std=(0.5,) * 3, channels_last=True
    )
    return mt.Memo(classifier, n_views=views, lr=LR, prior_strength=None)


def sample_image() -> np.ndarray:
    return load_sample()[0].image


def _compare_with_loop() -> Measurement:
    published, robust, image = published_loop(VIEWS), our_memo(VIEWS), sample_image()
    rng, ids = np.random.default_rng(0), count()
    seconds = interleaved(
        ROUNDS,
        ours=lambda: robust.predict(image, sample_id=next(ids)),
        loop=lambda: published.predict(image, rng),
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


def _compare_workers_with_loop() -> Measurement:
    """Measure the loop before and after the workers, because other load on the machine changes slowly."""
    published, image, rng = published_loop(VIEWS), sample_image(), np.random.default_rng(0)
    points = evaluation.WORKER_POINTS

    def loop_seconds() -> float:
        began = perf_counter()
        for _ in range(points // 4):
            published.predict(image, rng)
        return 4 * (perf_counter() - began)

    loop_seconds()
    before = loop_seconds()
    workers = _worker_seconds()
    baseline = (before + loop_seconds()) / 2
    rates = f"{points / workers:.1f} / {points / baseline:.1f} images/s"
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
        return evaluation.worker_seconds(job, 2)


def _compare_with_line() -> Measurement:
    """Compare the time for each B with a straight line from the smallest to the largest; return the worst."""
    robust, image, ids = {views: our_memo(views) for views in N_VIEWS}, sample_image(), count()

    def predict(views: int) -> None:
        robust[views].predict(image, sample_id=next(ids))

    seconds = interleaved(8, **{str(views): partial(predict, views) for views in N_VIEWS})
    times = {views: median(seconds[str(views)]) for views in N_VIEWS}
    first, last = N_VIEWS[0], N_VIEWS[-1]
    slope = (times[last] - times[first]) / (last - first)
    worst = max(time / (times[first] + slope * (views - first)) for views, time in times.items())
    shown = ", ".join(f"{views}: {1000 * time:.0f}" for views, time in times.items())
    return Measurement(
        "time by B / a straight line", worst, LINE_BAR, "x", f"ResNet-26, ms for each B: {shown}"
    )
