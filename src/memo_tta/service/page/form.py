"""The page's form: the bundled images and slider ranges that it offers, and the fields that it sends."""

from functools import cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES
from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.data.sample_images import load_sample
from memo_tta.methods.memo import MemoOptions
from memo_tta.models.classifier import Classifier
from memo_tta.service.api_errors import ApiError
from memo_tta.service.model import ServedModel

LR_EXPONENTS, LR_MANTISSAS = range(-5, -1), (1, 2.5, 5)


class FormFields(BaseModel):
    """The fields that the form sends, without the image file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample: int | None = None
    corruption: str = ""
    severity: int = Field(1, ge=min(SEVERITIES), le=max(SEVERITIES))
    n_views: int | None = Field(None, ge=1)
    lr_step: int | None = Field(None, ge=0)

    @property
    def corruption_level(self) -> CorruptionLevel | None:
        """The chosen corruption; None without one."""
        if not self.corruption:
            return None
        if self.corruption not in CORRUPTIONS:
            raise ApiError("invalid", "corruption: unknown; choose one of those on the page")
        return CorruptionLevel(self.corruption, self.severity)


class Controls:
    """The ranges of the sliders, their defaults, and the paper's values for this model."""

    def __init__(self, served_model: ServedModel):
        settings = served_model.settings
        self.defaults, self.max_views = served_model.methods[settings.method], settings.max_views
        self.paper = {name: _paper_value(served_model.classifier, name) for name in ("n_views", "lr")}
        grid = {float(f"{mantissa}e{exponent}") for exponent in LR_EXPONENTS for mantissa in LR_MANTISSAS}
        marked = {value for value in (self.paper["lr"], self.defaults.get("lr")) if value is not None}
        self.learning_rates = sorted(grid | marked)

    def method_options(self, fields: FormFields) -> dict[str, Any]:
        """Return the options of the method: the sliders' values for those that it has."""
        options = dict(self.defaults)
        if fields.n_views is not None and "n_views" in options:
            if fields.n_views > self.max_views:
                raise ApiError("invalid", f"n_views: expected at most {self.max_views}")
            options["n_views"] = fields.n_views
        if fields.lr_step is not None and "lr" in options:
            if fields.lr_step >= len(self.learning_rates):
                raise ApiError("invalid", f"lr_step: expected at most {len(self.learning_rates) - 1}")
            options["lr"] = self.learning_rates[fields.lr_step]
        return {**options, "seed": 0}


def _paper_value(classifier: Classifier, name: str) -> Any:
    return classifier.settings.get(name, getattr(MemoOptions(), name))


@cache
def sample_images() -> dict[int, tuple[str, np.ndarray]]:
    """Return the first bundled image of each class: its position → its label and pixels."""
    sample, first = load_sample(), dict[str, tuple[int, np.ndarray]]()
    for position, (_, image, target) in enumerate(sample):
        first.setdefault(sample.labels[target], (position, image))
    return {position: (label, image) for label, (position, image) in sorted(first.items())}
