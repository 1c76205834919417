"""Views: augmented copies of one input."""

from memo_tta.registry import Registry
from memo_tta.views.augmix import AugMix
from memo_tta.views.crop_flip import CropFlip
from memo_tta.views.custom import Augmentation, per_view
from memo_tta.views.restored_views import Restore

AUGMENTATIONS = Registry("augmentation", {"augmix": AugMix, "standard": CropFlip, "restore": Restore})

__all__ = ["AUGMENTATIONS", "AugMix", "Augmentation", "CropFlip", "Restore", "per_view"]
