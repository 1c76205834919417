"""The page's form: the methods and sliders that it offers, and the fields that it sends."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES
from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.methods import METHODS
from memo_tta.service.api_errors import ApiError
from memo_tta.service.model import ServedModel

LR_EXPONENTS, LR_MANTISSAS = range(-5, -1), (1, 2.5, 5)
# Preselected of the bundled samples: all bundled models take it for a frog, and `restore` corrects them all.
FIRST_NAME, FIRST_CORRUPTION, FIRST_SEVERITY = "cat", "gaussian_noise", 3


class FormFields(BaseModel):
    """The fields that the form sends, without the image file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample: int | None = None
    corruption: str = ""
    severity: int = Field(default=FIRST_SEVERITY, ge=min(SEVERITIES), le=max(SEVERITIES))
    method: str | None = None
    sliders_of: str | None = None  # the method whose sliders are sent; those of another one are ignored
    n_views: int | None = Field(default=None, ge=1)
    lr_step: int | None = Field(default=None, ge=0)

    @property
    def corruption_level(self) -> CorruptionLevel | None:
        """The chosen corruption; None without one."""
        if not self.corruption:
            return None
        if self.corruption not in CORRUPTIONS:
            raise ApiError("invalid", "corruption: unknown; choose one of those on the page")
        return CorruptionLevel(self.corruption, self.severity)


@dataclass(frozen=True)
class Slider:
    """A slider: it chooses one of the values by position, or a number if there are no values."""

    name: str  # of the field
    title: str
    low: int
    high: int
    position: int
    mark: int | None  # where the paper's value for this model is, if the method uses it
    values: tuple[float, ...] = ()

    @property
    def shown(self) -> float:
        """The value at the position."""
        return self.values[self.position] if self.values else self.position

    @property
    def mark_percent(self) -> float:
        """The place of the mark from the left, in percent."""
        assert self.mark is not None
        return 100 * (self.mark - self.low) / max(self.high - self.low, 1)


class Controls:
    """A method as the form offers it: what it does, and sliders for those of its options that it has."""

    def __init__(self, served_model: ServedModel, name: str):
        settings = served_model.settings
        self.name, self.about = name, METHODS[name].about
        self._defaults, self._max_views = served_model.methods[name], settings.max_views
        self._paper = _paper_values(name, served_model.classifier.settings)
        # The operator's options for which there is no slider.
        given = settings.options.get(name, {})
        self.settings = {key: value for key, value in given.items() if key not in self._defaults}
        grid = {float(f"{mantissa}e{exponent}") for exponent in LR_EXPONENTS for mantissa in LR_MANTISSAS}
        marked = {rates["lr"] for rates in (self._paper, self._defaults) if "lr" in rates}
        self._learning_rates = sorted(grid | marked)

    def sliders(self, fields: FormFields) -> list[Slider]:
        """Return the sliders, where the form left them."""
        chosen, sliders = self.options(fields), list[Slider]()
        if "n_views" in chosen:
            mark = min(self._paper["n_views"], self._max_views) if "n_views" in self._paper else None
            sliders.append(Slider("n_views", "Views, B", 1, self._max_views, chosen["n_views"], mark))
        if "lr" in chosen:
            rates = self._learning_rates
            mark = rates.index(self._paper["lr"]) if "lr" in self._paper else None
            position, last = rates.index(chosen["lr"]), len(rates) - 1
            sliders.append(Slider("lr_step", "Learning rate", 0, last, position, mark, tuple(rates)))
        return sliders

    def options(self, fields: FormFields) -> dict[str, Any]:
        """Return the options of the method: the sliders' values, if they are those of this method."""
        options: dict[str, Any] = {**self._defaults, "seed": 0}
        if fields.sliders_of not in (None, self.name):  # without scripts, the sliders of the last page
            return options
        if fields.n_views is not None and "n_views" in options:
            if fields.n_views > self._max_views:
                raise ApiError("invalid", f"n_views: expected at most {self._max_views}")
            options["n_views"] = fields.n_views
        if fields.lr_step is not None and "lr" in options:
            if fields.lr_step >= len(self._learning_rates):
                raise ApiError("invalid", f"lr_step: expected at most {len(self._learning_rates) - 1}")
            options["lr"] = self._learning_rates[fields.lr_step]
        return options


class PageForm:
    """The form of the page: its methods, its samples, and what is chosen at first."""

    def __init__(self, served_model: ServedModel):
        settings = served_model.settings
        self.controls = {name: Controls(served_model, name) for name in served_model.methods}
        self.samples = served_model.samples
        self.first = FormFields(method=settings.method, sample=0 if self.samples else None)
        names = [sample.name for sample in self.samples]
        if settings.samples is None and FIRST_NAME in names:
            choice = {"sample": names.index(FIRST_NAME), "corruption": FIRST_CORRUPTION}
            self.first = self.first.model_copy(update=choice)
        self._default = settings.method

    def chosen(self, fields: FormFields) -> Controls:
        """Return the chosen method."""
        name = self._default if fields.method is None else fields.method
        if name not in self.controls:
            raise ApiError("invalid", "method: unknown; choose one of those on the page")
        return self.controls[name]


def _paper_values(name: str, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paper's n_views and lr for this model, as far as the method takes them from the paper."""
    entry = METHODS[name]
    shared = entry.method.from_settings - set(entry.defaults)
    return {option: tuned[option] for option in ("n_views", "lr") if option in tuned and option in shared}
