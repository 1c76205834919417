"""The options of MEMO: the paper's, and what it leaves as future work."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.methods.options import (
    UpdateOptions,
    check_above_zero,
    check_at_least_zero,
    check_count,
    check_share,
)
from memo_tta.methods.viewing import ViewOptions
from memo_tta.objectives import OBJECTIVES
from memo_tta.registry import unknown_name

PREDICT = ("point", "marginal", "group")
RESETS = ("always", "never", "anchor")
WEIGHTINGS = ("uniform", "confidence")


@dataclass(frozen=True, kw_only=True)
class MemoOptions(UpdateOptions, ViewOptions):
    """How to adapt and to predict. What `PRESETS` and `BUDGETS` say comes before these defaults."""

    least_steps = 0  # which adapt nothing

    preset: str = "paper"  # or "best": restored views, averaged
    objective: str | Callable[[Tensor], Tensor] = "marginal_entropy"
    threshold: float | None = None  # adapt above this share of log K of marginal entropy (appendix A)
    skip_confidence: float | None = None  # adapt unless the source prediction is at least this sure
    early_views: int | None = None  # leave points alone where so many views, seen first, agree with source
    early_confidence: float = 0.9  # ... and are on average at least this sure
    budget: str = "full"  # or "fast": skip_confidence and the early options
    budget_seconds: float | None = None  # fewer views than n_views, if a point would take longer
    weighting: str = "uniform"  # of views in their average; "confidence": of groups of them, by entropy
    temperature: float = 2.0  # of that: 0 is uniform
    select: float | None = None  # adapt on this share of the views, those of lowest entropy
    predict: str = "point"  # with the adapted model: of the point, the average of views, or the surest group
    carry_optimizer: bool = False  # let moments leak from point to point, as the authors' script does
    reset: str = "always"  # or weights live on: "never" reset, or those of norm layers tied by an "anchor"
    pull: float = 0.01  # of the anchor: so far back to the source after every point that teaches

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.objective, str):
            _ = OBJECTIVES[self.objective]
        if self.threshold is not None:
            check_share("threshold", self.threshold, "[0, 1)", self.threshold != 1)
        if self.skip_confidence is not None:
            check_share("skip_confidence", self.skip_confidence, "(0, 1]", self.skip_confidence != 0)
        if self.early_views is not None:
            check_count("early_views", self.early_views)
        check_share("early_confidence", self.early_confidence, "(0, 1]", self.early_confidence != 0)
        if self.budget_seconds is not None:
            check_above_zero("budget_seconds", self.budget_seconds)
        if self.select is not None:
            check_share("select", self.select, "(0, 1]", self.select != 0)
        if self.predict not in PREDICT:
            raise unknown_name("predict", self.predict, PREDICT)
        if self.reset not in RESETS:
            raise unknown_name("reset", self.reset, RESETS)
        check_share("pull", self.pull, "(0, 1]", self.pull != 0)
        if self.weighting not in WEIGHTINGS:
            raise unknown_name("weighting", self.weighting, WEIGHTINGS)
        check_at_least_zero("temperature", self.temperature)
        if self.weighting != "uniform":
            what = f"weighting: {self.weighting!r}"
            if self.objective != "marginal_entropy":
                raise ConfigError(f"{what} weighs the marginal, so objective must be 'marginal_entropy'")
            if self.select is not None:
                raise ConfigError(f"{what} and select={self.select} both choose among views: give one")
        if self.objective == "pairwise_cross_entropy" and self.selected(self.n_views) < 2:
            raise ConfigError(
                "objective: pairwise_cross_entropy compares views, so n_views and select must leave 2 or more"
            )

        if self.steps == 0:
            self._refuse_what_needs_a_step()

    def _refuse_what_needs_a_step(self) -> None:
        """An option that would do nothing is a mistake."""
        plain = {"objective": "marginal_entropy", "threshold": None, "select": None, "reset": "always"}
        for name, value in plain.items():
            if getattr(self, name) != value:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is for steps, and steps is 0")
        if self.predict == "point":
            raise ConfigError(
                "predict: without steps the point gets the source prediction: use 'marginal' or 'group'"
            )

    def selected(self, views: int) -> int:
        """How many of so many views the objective sees."""
        return views if self.select is None else max(1, round(self.select * views))
