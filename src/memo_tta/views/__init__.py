"""Views: augmented copies of one input."""

from functools import partial

from memo_tta.image import Size
from memo_tta.registry import Registry
from memo_tta.views.augmix import AugMix
from memo_tta.views.crop_flip import CropFlip, is_large
from memo_tta.views.custom import Augmentation, per_view
from memo_tta.views.restored_versions import RestoredVersions
from memo_tta.views.restored_views import Restore


def _restore(size: Size) -> Augmentation:
    return RestoredVersions(size) if is_large(size) else Restore(size)


AUGMENTATIONS = Registry(
    "augmentation",
    {
        "augmix": AugMix,
        "augmix-mild": partial(AugMix, crop="mild"),
        "standard": CropFlip,
        "restore": _restore,
    },
)

__all__ = ["AUGMENTATIONS", "AugMix", "Augmentation", "CropFlip", "Restore", "RestoredVersions", "per_view"]
