"""The paper's published figures, for comparison with runs in the same setting.

From "MEMO: Test Time Robustness via Adaptation and Augmentation" (Zhang, Levine and Finn, NeurIPS 2022).
"""

from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

from memo_tta.data.corruptions.severity import SEVERITIES, TEST

EVERY_PART = {(corruption, severity) for corruption in TEST for severity in SEVERITIES}
STANDARD = {"augment": "standard"}

# Model → method → error % on CIFAR-10, CIFAR-10.1 and CIFAR-10-C (averaged over all parts).
CIFAR_COLUMNS = ("cifar10", "cifar10.1", "cifar10-c")
CIFAR = {
    "resnet26": {
        "source": (9.2, 18.4, 22.5),
        "tta": (7.3, 14.8, 19.9),
        "memo": (7.3, 14.7, 19.6),
        "memo-pce": (7.6, 15.3, 20.0),
        "memo-ce": (7.6, 14.7, 20.0),
        "memo, standard views": (7.2, 14.6, 20.2),
    },
    "resnet26-joint": {"source": (8.1, 16.7, 22.8), "ttt": (7.9, 15.9, 21.5)},
}

# Model → method → mCE on ImageNet-C, error % on ImageNet-R and on ImageNet-A.
IMAGENET_COLUMNS = ("imagenet-c", "imagenet-r", "imagenet-a")
IMAGENET: dict[str, dict[str, tuple[float | None, ...]]] = {
    "resnet50": {
        "source": (76.7, 63.9, 100.0),
        "tta": (77.9, 61.3, 98.4),
        "bn1": (71.4, 61.1, 99.4),
        "memo": (69.9, 58.8, 99.1),
        "bn": (61.6, 59.7, 99.8),
        "tent": (54.4, 57.7, 99.8),
        "tent-episodic": (64.7, 61.0, 99.7),
        "tent-bs1": (70.4, 60.0, 99.3),
    },
    "resnet50-deepaugment-augmix": {
        "source": (53.6, 53.2, 96.1),
        "tta": (55.2, 51.0, 93.5),
        "bn1": (51.3, 51.2, 95.4),
        "memo": (49.8, 49.2, 94.8),
        "bn": (45.4, 48.8, 96.8),
        "tent": (43.5, 46.9, 96.7),
        "tent-episodic": (47.1, 50.1, 96.6),
        "tent-bs1": (50.7, 50.7, 95.2),
    },
    "resnet50-moex-cutmix": {
        "source": (74.8, 64.5, 91.9),
        "tta": (75.7, 62.7, 89.5),
        "bn1": (71.0, 62.6, 91.1),
        "memo": (69.1, 59.4, 89.0),
        "bn": (60.9, 61.6, 93.9),
        "tent": (54.0, 58.7, 94.4),
        "tent-episodic": (66.2, 63.9, 94.7),
        "tent-bs1": (69.9, 61.7, 90.6),
    },
    "rvt_small_plus": {
        "source": (49.4, 52.3, 73.9),
        "tta": (53.0, 49.0, 68.9),
        "bn1": (48.0, 51.1, 74.4),
        "memo": (40.6, 43.8, 69.8),
        "bn": (44.3, 51.0, 78.3),
        "tent": (46.8, 50.7, 82.1),
        "tent-all": (44.7, 74.1, 81.1),
        "tent-bs1": (47.9, 50.9, 74.4),
        "memo-ce": (41.2, 44.2, 69.7),
    },
    "resnext101_32x8d": {
        "source": (None, None, 90.0),
        "tta": (None, None, 83.2),
        "bn1": (None, None, 88.8),
        "memo": (None, None, 84.3),
    },
    "resnext101_32x8d-wsl": {
        "source": (None, None, 54.9),
        "tta": (None, None, 49.1),
        "bn1": (None, None, 58.9),
        "memo": (None, None, 43.2),
    },
}

# Method → corruption → error % of ResNet-26 on CIFAR-10-C at levels 1 to 5.
CIFAR10C = {
    "source": {
        "gaussian_noise": (20.8, 30.1, 40.0, 43.8, 48.4),
        "shot_noise": (16.5, 21.8, 33.8, 37.2, 44.8),
        "impulse_noise": (15.8, 21.1, 26.4, 39.3, 50.3),
        "defocus_blur": (9.2, 9.7, 11.5, 14.8, 24.1),
        "glass_blur": (38.9, 38.3, 37.3, 48.0, 47.7),
        "motion_blur": (11.8, 15.3, 20.0, 19.9, 24.5),
        "zoom_blur": (12.8, 13.8, 16.6, 18.7, 24.1),
        "snow": (13.9, 21.2, 20.0, 22.0, 24.1),
        "frost": (13.4, 17.6, 24.7, 24.9, 33.1),
        "fog": (9.7, 10.5, 12.2, 15.1, 28.0),
        "brightness": (9.4, 9.7, 10.5, 11.4, 14.1),
        "contrast": (9.6, 11.6, 13.6, 16.8, 29.7),
        "elastic_transform": (13.1, 12.9, 15.0, 19.1, 25.6),
        "pixelate": (12.0, 15.4, 18.4, 27.9, 43.7),
        "jpeg_compression": (16.4, 21.3, 22.7, 24.9, 28.3),
    },
    "tta": {
        "gaussian_noise": (15.8, 25.3, 34.3, 39.5, 43.4),
        "shot_noise": (12.8, 16.9, 27.7, 32.0, 39.6),
        "impulse_noise": (11.8, 15.8, 20.3, 31.8, 42.9),
        "defocus_blur": (7.3, 8.5, 11.3, 15.4, 28.3),
        "glass_blur": (35.1, 33.8, 32.9, 45.0, 44.7),
        "motion_blur": (10.8, 15.3, 20.7, 20.9, 26.3),
        "zoom_blur": (12.5, 13.7, 16.7, 20.2, 26.3),
        "snow": (11.0, 17.8, 16.3, 18.9, 21.4),
        "frost": (10.8, 14.5, 21.1, 21.7, 28.5),
        "fog": (7.4, 8.7, 9.8, 12.9, 23.3),
        "brightness": (7.4, 7.8, 8.5, 9.3, 12.1),
        "contrast": (7.7, 10.0, 12.5, 16.8, 32.9),
        "elastic_transform": (11.4, 11.0, 13.7, 17.7, 21.7),
        "pixelate": (9.2, 12.0, 14.5, 25.7, 43.2),
        "jpeg_compression": (12.5, 16.1, 17.2, 18.9, 21.7),
    },
    "memo": {
        "gaussian_noise": (16.1, 25.3, 34.4, 39.7, 43.5),
        "shot_noise": (12.9, 16.9, 27.9, 32.3, 39.8),
        "impulse_noise": (11.9, 15.9, 20.5, 32.2, 43.3),
        "defocus_blur": (7.4, 8.4, 10.8, 14.7, 26.4),
        "glass_blur": (34.7, 33.5, 32.8, 45.0, 44.4),
        "motion_blur": (10.4, 14.6, 19.8, 20.0, 25.1),
        "zoom_blur": (12.1, 13.0, 16.1, 19.2, 25.0),
        "snow": (11.0, 17.7, 16.1, 18.7, 20.9),
        "frost": (10.7, 14.4, 20.9, 21.1, 28.3),
        "fog": (7.4, 8.5, 9.6, 12.5, 22.8),
        "brightness": (7.3, 7.7, 8.6, 9.3, 11.9),
        "contrast": (7.5, 9.6, 11.7, 15.2, 28.3),
        "elastic_transform": (10.9, 10.7, 13.2, 16.9, 21.1),
        "pixelate": (9.2, 11.9, 14.5, 25.2, 42.8),
        "jpeg_compression": (12.5, 16.2, 17.2, 18.9, 21.7),
    },
}


def published(
    model: str, dataset: str, parts: Collection[tuple[str, int]], method: str, options: Mapping[str, Any]
) -> float | None:
    """Return the paper's error % (ImageNet-C: mCE), averaged over `parts`; None outside the paper's settings.

    `options` are those of the method that differ from the defaults.
    """
    if options == STANDARD and method == "memo":
        method = "memo, standard views"
    elif options:
        return None
    # CIFAR-10 corrupted on the fly counts as CIFAR-10-C.
    parts = set(parts)
    is_corrupted = parts != {("", 0)}
    dataset = "cifar10-c" if is_corrupted and dataset == "cifar10" else dataset
    if is_corrupted != dataset.endswith("-c"):
        return None
    levels = CIFAR10C.get(method, {}) if (model, dataset) == ("resnet26", "cifar10-c") else {}
    if levels and all(corruption in levels for corruption, _ in parts):
        return fmean(levels[corruption][severity - 1] for corruption, severity in parts)
    if is_corrupted and parts != EVERY_PART:
        return None
    for columns, table in ((CIFAR_COLUMNS, CIFAR), (IMAGENET_COLUMNS, IMAGENET)):
        if dataset in columns and method in table.get(model, {}):
            return table[model][method][columns.index(dataset)]
    return None
