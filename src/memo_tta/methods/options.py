"""Options that check themselves and speak in the user's terms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from memo_tta.errors import ConfigError
from memo_tta.methods.parameters import ParameterChoice
from memo_tta.methods.update import UPDATE_RULES, UpdateRule
from memo_tta.registry import unknown_name

AnyOptions = TypeVar("AnyOptions", bound="Options")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes."""

    seed: int = 0

    def __post_init__(self) -> None:
        check_count("seed", self.seed, least=0)


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(Options):
    """How weights are adapted: the update rule G, how often, and to which parameters."""

    least_steps = 1

    optimizer: str = "sgd"
    lr: float = 2.5e-4
    momentum: float = 0.0  # of SGD; Adam and AdamW have their own
    weight_decay: float = 0.0
    steps: int = 1
    params: ParameterChoice = "all"
    prior_strength: float | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = UPDATE_RULES[self.optimizer]
        check_above_zero("lr", self.lr)
        check_share("momentum", self.momentum, "[0, 1)", self.momentum != 1)
        check_at_least_zero("weight_decay", self.weight_decay)
        check_count("steps", self.steps, self.least_steps)
        if not isinstance(self.params, str) and not callable(self.params):
            raise ConfigError(
                "params: expected 'all', 'norm', 'head', a regular expression or a predicate, "
                f"got {self.params!r}"
            )
        check_prior_strength(self.prior_strength)

    def update_rule(self) -> UpdateRule:
        """A new rule, without moments."""
        return UPDATE_RULES[self.optimizer](self.lr, self.momentum, self.weight_decay)


def build_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """The options from a mapping; an unknown name answers with the choices."""
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            raise unknown_name("option", name, names)
    return kind(**given)


def check_count(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: expected a whole number, got {value!r}")
    if value < least:
        raise ConfigError(f"{name}: expected at least {least}, got {value}")


def check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name}: expected a number, got {value!r}")


def check_above_zero(name: str, value: float) -> None:
    check_number(name, value)
    if value <= 0:
        raise ConfigError(f"{name}: expected more than 0, got {value}")


def check_at_least_zero(name: str, value: float) -> None:
    check_number(name, value)
    if value < 0:
        raise ConfigError(f"{name}: expected at least 0, got {value}")


def check_share(name: str, value: float, shown: str, inside: bool) -> None:
    """A share from 0 to 1; `inside` says whether an end that does not count was avoided."""
    check_number(name, value)
    if not 0 <= value <= 1 or not inside:
        raise ConfigError(f"{name}: expected a number in {shown}, got {value}")


def check_prior_strength(value: float | None) -> None:
    if value is not None:
        check_at_least_zero("prior_strength", value)
