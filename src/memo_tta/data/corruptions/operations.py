"""The function behind each corruption: (uint8 image, rng, *constants) -> new uint8 image."""

from collections.abc import Callable

import numpy as np

from memo_tta.data.corruptions import blur, digital, noise, own_validation, weather

OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": weather.spatter,
    "saturate": digital.saturate,
}

OWN_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "haze": own_validation.haze,
    "colour_cast": own_validation.colour_cast,
    "low_light": own_validation.low_light,
    "line_blur": own_validation.line_blur,
    "mosaic": own_validation.mosaic,
    "dct_blocks": own_validation.dct_blocks,
    "jitter": own_validation.jitter,
}
