"""Options, each declared once: checks, help, documentation and schemas are made from the declaration."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol, TypeVar

from memo_tta.errors import ConfigError
from memo_tta.registry import unknown_name

AnyOptions = TypeVar("AnyOptions", bound="Options")

# Options of earlier versions, and what to write instead.
REMOVED = {
    "preset": "preset='best' is now the method restore, in Python mt.method('restore', classifier)",
    "budget": "budget='fast' is now the method memo-fast, in Python mt.method('memo-fast', classifier)",
    "budget_seconds": "give fewer views, such as n_views=16, or serve the model with a deadline",
}


class Values(Protocol):
    """The values that an option may take; str() describes them, to follow "expected"."""

    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError if the option `name` may not have this value."""
        ...


class Number:
    """A number in an interval such as "(0, 1]"; `hint` ends the error about a number outside it."""

    def __init__(self, interval: str, *, whole: bool = False, hint: str = ""):
        low, high = interval[1:-1].split(",")
        self.low, self.high, self.whole = float(low), float(high), whole
        self.includes_low, self.includes_high = interval[0] == "[", interval[-1] == "]"
        self._interval, self._hint = interval, hint

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'at least' if self.includes_low else 'more than'} {self.low:g}"
        return f"a number in {self._interval}"

    def check(self, name: str, value: Any) -> None:
        kinds = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
            raise ConfigError(f"{name}: expected a {'whole ' * self.whole}number, got {value!r}")
        is_above = value >= self.low if self.includes_low else value > self.low
        is_below = value <= self.high if self.includes_high else value < self.high
        if not is_above or not is_below:
            hint = f": {self._hint}" if self._hint else ""
            raise ConfigError(f"{name}: expected {self}, got {value}{hint}")


class OneOf:
    """One of several names or, if `or_callable`, a function; `kind` names the choice in errors."""

    def __init__(self, kind: str, names: Collection[str], *, or_callable: bool = False):
        self._kind, self._names, self._or_callable = kind, names, or_callable

    def __str__(self) -> str:
        return ", ".join(self._names) + (", or a function" if self._or_callable else "")

    def check(self, name: str, value: Any) -> None:
        if self._or_callable:
            if callable(value):
                return
            if not isinstance(value, str):
                raise ConfigError(f"{name}: expected a name or a function, got {value!r}")
        if not isinstance(value, str) or value not in self._names:
            raise unknown_name(self._kind, value, self._names)


class Flag:
    """A boolean."""

    def __str__(self) -> str:
        return "true or false"

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: expected true or false, got {value!r}")


class Described:
    """Values that satisfy a predicate; `description` follows "expected" in errors."""

    def __init__(self, description: str, is_valid: Callable[[Any], bool]):
        self._description, self._is_valid = description, is_valid

    def __str__(self) -> str:
        return self._description

    def check(self, name: str, value: Any) -> None:
        if not self._is_valid(value):
            raise ConfigError(f"{name}: expected {self._description}, got {value!r}")


@dataclass(frozen=True)
class Condition:
    """A condition on another option; `remedy` follows "set" in the error if it does not hold."""

    name: str
    remedy: str
    holds: Callable[[Any], bool]


def when(name: str, value: Any) -> Condition:
    """Return the condition that the option `name` has this value."""
    return Condition(name, f"{name}={value!r}", lambda given: given == value)


def when_given(name: str) -> Condition:
    """Return the condition that the option `name` is not None."""
    return Condition(name, name, lambda given: given is not None)


Conditions = tuple[Condition, ...]
NO_VALUE = object()


@dataclass(frozen=True)
class Declaration:
    """Name, default, values and meaning of an option, and when it has an effect."""

    name: str
    default: Any
    values: Values
    meaning: str
    can_be_none: bool
    needs: tuple[Conditions, ...]  # the option has an effect only if one condition of each tuple holds
    off: Any  # the value that switches the option off, which is never refused; NO_VALUE if there is none

    @property
    def shown_values(self) -> str:
        """Description of the values, for help and documentation."""
        return f"{self.values}, or none" if self.can_be_none else str(self.values)

    def unmet(self, values: Mapping[str, Any]) -> Conditions:
        """Return conditions of which one must hold for the option to have an effect; empty if it has one."""
        for conditions in self.needs:
            applicable = tuple(condition for condition in conditions if condition.name in values)
            if not any(condition.holds(values[condition.name]) for condition in applicable):
                return applicable
        return ()


def option(
    default: Any,
    values: Values,
    meaning: str,
    *,
    can_be_none: bool | None = None,
    needs: Iterable[Condition | Conditions] = (),
    off: Any = NO_VALUE,
) -> Any:
    """Declare a field of an options dataclass; `can_be_none` defaults to whether the default is None."""
    metadata = {
        "values": values,
        "meaning": meaning,
        "can_be_none": default is None if can_be_none is None else can_be_none,
        "needs": tuple(need if isinstance(need, tuple) else (need,) for need in needs),
        "off": off,
    }
    return field(default=default, metadata=metadata)


def with_default(owner: type, name: str, default: Any, **changes: Any) -> Any:
    """Declare a field like the owner's, with another default and these changes."""
    (declared,) = (declared for declared in fields(owner) if declared.name == name)
    return option(default, **{**declared.metadata, **changes})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every method; each is checked when the object is built."""

    seed: int = option(
        0, Number("[0, inf)", whole=True), "random seed of the views; no effect on methods without views"
    )

    def __post_init__(self) -> None:
        for name, declared in declarations(type(self)).items():
            value = getattr(self, name)
            if value is not None or not declared.can_be_none:
                declared.values.check(name, value)


def declarations(kind: type[Options]) -> dict[str, Declaration]:
    """Return the declarations of an options dataclass by name."""
    assert all(declared.default is not MISSING for declared in fields(kind))
    return {one.name: Declaration(one.name, one.default, **one.metadata) for one in fields(kind)}


def merge_options(kind: type[Options], base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` merged over `base`, without the options of `base` that `given` leaves without effect."""
    declared = declarations(kind)
    defaults = {name: declaration.default for name, declaration in declared.items()}
    kept, overridden = dict(base), set(given)
    while True:
        values = {**defaults, **kept, **given}
        dropped = [
            name for name in kept if any(need.name in overridden for need in declared[name].unmet(values))
        ]
        if not dropped:
            return {**kept, **given}
        for name in dropped:  # options that depend on it may have no effect now: the next round finds them
            del kept[name]
        overridden.update(dropped)


def build_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """Build the options; raise ConfigError for unknown names and for options without effect."""
    declared = declarations(kind)
    check_names(given, declared, "option")
    options = kind(**given)
    for name in ineffective(kind, given):
        unmet = declared[name].unmet(vars(options))
        found = " and ".join(f"{condition.name}={vars(options)[condition.name]!r}" for condition in unmet)
        remedy = " or ".join(condition.remedy for condition in unmet)
        raise ConfigError(f"{name}: has no effect with {found}: set {remedy}, or leave {name} out")
    return options


def ineffective(kind: type[Options], given: Mapping[str, Any]) -> list[str]:
    """Return the names of the given options that have no effect with the others."""
    declared = declarations(kind)
    values = {**{name: declaration.default for name, declaration in declared.items()}, **given}
    return [
        name
        for name, value in given.items()
        if name in declared and value != declared[name].off and declared[name].unmet(values)
    ]


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise ConfigError for an unknown name; for a removed option, say what to write instead."""
    for name in given:
        if name in REMOVED:
            raise ConfigError(f"{name}: no longer an option: {REMOVED[name]}")
        if name not in known:
            raise unknown_name(what, name, known)
