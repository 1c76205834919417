"""What memo-fast saves and costs on CIFAR-10: python -m studies.memo_fast WEIGHTS [POINTS] [DATA...].

WEIGHTS are a ResNet-26's; DATA are cifar10 and cifar10+gaussian_noise:5 unless named.
"""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.statistics import paired
from memo_tta.methods import method
from memo_tta.models.zoo import load

DATA = ("cifar10", "cifar10+gaussian_noise:5")


def measure(weights: Path, data: Dataset) -> str:
    """Both take turns at every point, so that what else the machine does hits both."""
    classifier = load("resnet26", weights)
    methods = {name: method(name, classifier) for name in ("memo", "memo-fast")}
    seconds, wrong = dict.fromkeys(methods, 0.0), {name: list[bool]() for name in methods}
    adapted = 0
    for sample in data:
        for name, robust in methods.items():
            began = perf_counter()
            prediction = robust.predict(sample.image, sample_id=sample.id)
            seconds[name] += perf_counter() - began
            wrong[name].append(prediction.index != sample.target)
            adapted += name == "memo-fast" and prediction.adapted
    change = paired(wrong["memo-fast"], wrong["memo"], np.random.default_rng(0))
    errors = {name: f"{100 * sum(mistakes) / len(mistakes):.1f} %" for name, mistakes in wrong.items()}
    return (
        f"| {data.name} {data.corruption or ''} | {len(data)} | {errors['memo']} | {errors['memo-fast']} | "
        f"{change.helped} / {change.hurt} | {100 * adapted / len(data):.0f} % | "
        f"{seconds['memo-fast'] / seconds['memo']:.2f} |\n"
    )


def main(weights: str, points: str = "1000", *specs: str) -> None:
    sys.stdout.write(
        "| data | points | memo | memo-fast | set right / made wrong | adapted | time, memo-fast / memo |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for spec in specs or DATA:
        (data,) = load_parts(spec, None, None, 0)
        sys.stdout.write(measure(Path(weights), balanced(data, int(points), 0)))
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
