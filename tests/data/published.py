"""Small files in the published formats."""

import numpy as np
from PIL import Image

RNG = np.random.default_rng(1)


def images(n, side=32):
    return RNG.integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def save_cifar101(folder, version, rows):
    folder.mkdir(exist_ok=True)
    x, y = images(rows), RNG.integers(0, 10, rows)
    np.save(folder / f"cifar10.1_{version}_data.npy", x)
    np.save(folder / f"cifar10.1_{version}_labels.npy", y.astype(np.int32))
    return x, y


def save_folder(root, names, side=40):
    """Write a random image under each name; return the pixels as read back."""
    saved = {}
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(images(1, side)[0])
        picture.save(root / name, "PNG" if name.endswith("png") else "JPEG")
        saved[name] = np.asarray(Image.open(root / name))
    return saved
