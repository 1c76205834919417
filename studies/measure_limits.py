"""Measure blur and the limits of restorations on training images: python -m studies.measure_limits --help.

Prints the constants of `views/directional_blur` as least squares give them on images blurred by lines and
Gaussians, and the share of clean and of shifted images that each restoration changes. The ratio is then set
above the fitted one, so that clean images are left alone.
"""

from itertools import product

import click
import numpy as np
import torch
from scipy import ndimage

from memo_tta.data.catalog import load_dataset
from memo_tta.data.corrupted_dataset import corrupted
from memo_tta.data.corruptions import OWN_VALIDATION
from memo_tta.data.corruptions.own_validation import line_kernel
from memo_tta.report.markdown import table_row
from memo_tta.views.directional_blur import detail_ratios
from memo_tta.views.restoration import LARGE_IMAGES, SMALL_IMAGES
from memo_tta.views.restored_views import to_float


def blurred(image: np.ndarray, kind: int, rng: np.random.Generator) -> tuple[np.ndarray, list[float]]:
    """Return the image, clean (0), blurred by a line (1) or a Gaussian (2), and the blur's yy, xx and xy."""
    x = image.astype(float)
    if kind == 1:
        length, angle = rng.uniform(1, 6), rng.uniform(0, np.pi)
        down, right = -np.sin(angle), np.cos(angle)
        x = ndimage.convolve(x, line_kernel(length, angle)[..., None], mode="reflect")
        return x.astype(np.uint8), [length**2 / 12 * v for v in (down**2, right**2, down * right)]
    if kind == 2:
        sigma = rng.uniform(0.4, 1.3)
        return ndimage.gaussian_filter(x, sigma, axes=(0, 1)).astype(np.uint8), [sigma**2, sigma**2, 0.0]
    return image, [0.0, 0.0, 0.0]


@click.command(help=__doc__)
@click.option("--limit", default=2000, show_default=True, help="Training images.")
def main(limit: int) -> None:
    data, rng = load_dataset("cifar10-train"), np.random.default_rng(0)
    shown = [blurred(data[index].image, index % 3, rng) for index in range(limit)]
    ratios = np.array([detail_ratios(to_float(image)) for image, _ in shown])
    covariances = np.array([covariance for _, covariance in shown])
    axes, variances = ratios[:, :2].ravel(), covariances[:, :2].ravel()
    scale, offset = np.polyfit(axes, variances, 1)
    diagonal = ratios[:, 2] - ratios[:, 3]
    shear = float(diagonal @ covariances[:, 2] / (diagonal @ diagonal))
    click.echo(f"variance = {scale:.2f} (ratio - {-offset / scale:.2f}), diagonals {shear / scale:.2f} of it")
    parts = {"clean": [to_float(data[index].image) for index in range(limit)]}
    for name, level in product(OWN_VALIDATION, (1, 3, 5)):
        shifted = corrupted(data, name, level)
        parts[f"{name} {level}"] = [to_float(shifted[index].image) for index in range(limit // 20)]
    names = [one for one in SMALL_IMAGES if one not in LARGE_IMAGES]
    click.echo(f"{table_row(['changed %', *(one.__name__ for one in names)])}\n|{'---|' * (1 + len(names))}")
    for part, images in parts.items():
        shares = [np.mean([not torch.equal(one(x), x) for x in images]) for one in names]
        click.echo(table_row([part, *(f"{100 * share:.1f}" for share in shares)]))


if __name__ == "__main__":
    main()
