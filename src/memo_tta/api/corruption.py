"""`corrupt`: one image under a published corruption, also in the words of the package imagecorruptions."""

import numpy as np

from memo_tta.data.corruptions import CORRUPTIONS, TEST, VALIDATION, apply_corruption, check_severity
from memo_tta.errors import ConfigError
from memo_tta.image import ImageLike, read_image
from memo_tta.registry import Registry
from memo_tta.seeding import content_id, sample_rng

SUBSETS = Registry(
    "subset of the corruptions",
    {
        "common": TEST,
        "validation": VALIDATION,
        "all": CORRUPTIONS,
        "noise": CORRUPTIONS[0:3],
        "blur": CORRUPTIONS[3:7],
        "weather": CORRUPTIONS[7:11],
        "digital": CORRUPTIONS[11:15],
    },
)
NUMBERS = range(len(CORRUPTIONS))


def corrupt(
    image: ImageLike,
    name: str | None = None,
    severity: int = 1,
    *,
    seed: int = 0,
    corruption_name: str | None = None,
    corruption_number: int | None = None,
) -> np.ndarray:
    """Return the image under a corruption at a severity of 1..5, as a uint8 array (height, width, 3).

    The image is a path, a PIL image or a uint8 array. The same seed, image, corruption and severity give the
    same pixels. Images of up to 64 pixels get the constants of CIFAR-10-C, larger ones those of ImageNet-C.
    `corruption_name` and `corruption_number`, a position in `get_corruption_names("all")`, are other ways to
    say `name`, which the package imagecorruptions has.
    """
    chosen = _chosen_name(name, corruption_name, corruption_number)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed: expected a whole number of at least 0, got {seed!r}")
    level, pixels = check_severity(severity), read_image(image)
    rng = sample_rng(int(seed), f"{chosen} {level} {content_id(pixels)}")
    return apply_corruption(pixels, chosen, level, rng)


def get_corruption_names(subset: str = "common") -> list[str]:
    """Return the names of corruptions: common, validation, all, noise, blur, weather or digital."""
    return list(SUBSETS[subset])


def _chosen_name(name: str | None, corruption_name: str | None, number: int | None) -> str:
    given = {"name": name, "corruption_name": corruption_name, "corruption_number": number}
    given = {key: value for key, value in given.items() if value is not None}
    if len(given) != 1:
        raise ConfigError(
            f"corrupt: expected one of name, corruption_name and corruption_number, "
            f"got {' and '.join(f'{key}={value!r}' for key, value in given.items()) or 'none'}"
        )
    ((key, value),) = given.items()
    if key == "corruption_number":
        return _numbered(value)
    if not isinstance(value, str):
        raise ConfigError(
            f"{key}: expected the name of a corruption, got {value!r}: pass a severity as severity={value!r}"
        )
    return value


def _numbered(number: object) -> str:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number not in NUMBERS:
        raise ConfigError(f"corruption_number: expected a whole number in 0..{NUMBERS[-1]}, got {number!r}")
    return CORRUPTIONS[int(number)]
