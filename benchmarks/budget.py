"""What budget="fast" saves and costs on CIFAR-10: python -m benchmarks.budget WEIGHTS [POINTS] [DATA...].

WEIGHTS are a ResNet-26's; DATA are cifar10 and cifar10+gaussian_noise:5 unless named.
"""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.statistics import paired
from memo_tta.evaluation.summary import balanced
from memo_tta.methods.memo import Memo
from memo_tta.models.zoo import load

DATA = ("cifar10", "cifar10+gaussian_noise:5")


def measure(weights: Path, data: Dataset) -> str:
    """Both take turns at every point, so that what else the machine does hits both."""
    classifier = load("resnet26", weights)
    methods = {budget: Memo(classifier, budget=budget) for budget in ("full", "fast")}
    seconds, wrong = dict.fromkeys(methods, 0.0), {budget: list[bool]() for budget in methods}
    adapted = 0
    for sample in data:
        for budget, robust in methods.items():
            began = perf_counter()
            prediction = robust.predict(sample.image, sample_id=sample.id)
            seconds[budget] += perf_counter() - began
            wrong[budget].append(prediction.index != sample.label)
            adapted += budget == "fast" and prediction.adapted
    change = paired(wrong["fast"], wrong["full"], np.random.default_rng(0))
    errors = {budget: f"{100 * sum(mistakes) / len(mistakes):.1f} %" for budget, mistakes in wrong.items()}
    return (
        f"| {data.name} {data.corruption or ''} | {len(data)} | {errors['full']} | {errors['fast']} | "
        f"{change.helped} / {change.hurt} | {100 * adapted / len(data):.0f} % | "
        f"{seconds['fast'] / seconds['full']:.2f} |\n"
    )


def main(weights: str, points: str = "1000", *specs: str) -> None:
    sys.stdout.write(
        "| data | points | full | fast | set right / made wrong | adapted | time, fast / full |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for spec in specs or DATA:
        (data,) = load_parts(spec, None, None, 0)
        sys.stdout.write(measure(Path(weights), balanced(data, int(points), 0)))
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
