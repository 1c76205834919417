"""Views: augmented copies of one input."""

from memo_tta.registry import Registry
from memo_tta.views.augmix import AugMix
from memo_tta.views.custom import Augmentation, per_view
from memo_tta.views.standard import CropFlip

AUGMENTATIONS = Registry("augmentation", {"augmix": AugMix, "standard": CropFlip})

__all__ = ["AUGMENTATIONS", "AugMix", "Augmentation", "CropFlip", "per_view"]
