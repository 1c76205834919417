"""Options, each declared once: checks, help, documentation and schemas follow from the declaration."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol, TypeVar

from memo_tta.errors import ConfigError
from memo_tta.registry import unknown_name

AnyOptions = TypeVar("AnyOptions", bound="Options")

# Options of former versions, and what to write instead.
REMOVED = {
    "preset": "preset='best' is now the method restore, in Python mt.method('restore', classifier)",
    "budget": "budget='fast' is now the method memo-fast, in Python mt.method('memo-fast', classifier)",
    "budget_seconds": "give fewer views, such as n_views=16, or serve the model with a deadline",
}


class Values(Protocol):
    """The values that an option may take; its string completes "expected ..."."""

    def check(self, name: str, value: Any) -> None: ...


class Number:
    """A number in an interval such as "(0, 1]"; `instead` says what to do about one outside."""

    def __init__(self, interval: str, *, whole: bool = False, instead: str = ""):
        low, high = interval[1:-1].split(",")
        self.low, self.high, self.whole = float(low), float(high), whole
        self.low_counts, self.high_counts = interval[0] == "[", interval[-1] == "]"
        self._interval, self._instead = interval, instead

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'at least' if self.low_counts else 'more than'} {self.low:g}"
        return f"a number in {self._interval}"

    def check(self, name: str, value: Any) -> None:
        kinds = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
            raise ConfigError(f"{name}: expected a {'whole ' * self.whole}number, got {value!r}")
        above = value >= self.low if self.low_counts else value > self.low
        below = value <= self.high if self.high_counts else value < self.high
        if not above or not below:
            instead = f": {self._instead}" if self._instead else ""
            raise ConfigError(f"{name}: expected {self}, got {value}{instead}")


class OneOf:
    """One of some names or, if `or_callable`, a function of the user's."""

    def __init__(self, kind: str, names: Collection[str], *, or_callable: bool = False):
        self._kind, self._names, self._or_callable = kind, names, or_callable

    def __str__(self) -> str:
        return ", ".join(self._names) + (", or a function" if self._or_callable else "")

    def check(self, name: str, value: Any) -> None:
        if self._or_callable:
            if callable(value):
                return
            if not isinstance(value, str):
                raise ConfigError(f"{name}: expected a name or a callable, got {value!r}")
        if not isinstance(value, str) or value not in self._names:
            raise unknown_name(self._kind, value, self._names)


class Flag:
    def __str__(self) -> str:
        return "true or false"

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: expected true or false, got {value!r}")


class Described:
    """Whatever passes the test, described in words."""

    def __init__(self, words: str, test: Callable[[Any], bool]):
        self._words, self._test = words, test

    def __str__(self) -> str:
        return self._words

    def check(self, name: str, value: Any) -> None:
        if not self._test(value):
            raise ConfigError(f"{name}: expected {self._words}, got {value!r}")


@dataclass(frozen=True)
class Condition:
    """Another option with a value that satisfies the test; `words` complete "set ..."."""

    name: str
    words: str
    test: Callable[[Any], bool]


def when(name: str, value: Any) -> Condition:
    return Condition(name, f"{name}={value!r}", lambda given: given == value)


def when_given(name: str) -> Condition:
    return Condition(name, name, lambda given: given is not None)


Conditions = tuple[Condition, ...]
NEVER = object()


@dataclass(frozen=True)
class Declaration:
    """All there is to know of an option."""

    name: str
    default: Any
    values: Values
    meaning: str
    can_be_none: bool
    needs: tuple[Conditions, ...]  # it has no effect unless one condition of each holds
    off: Any  # the value with which it asks for nothing

    @property
    def shown_values(self) -> str:
        return f"{self.values}, or none" if self.can_be_none else str(self.values)

    def unmet(self, values: Mapping[str, Any]) -> Conditions:
        """Conditions of which one would have to hold for it to have an effect; none if it has one."""
        for conditions in self.needs:
            known = tuple(condition for condition in conditions if condition.name in values)
            if not any(condition.test(values[condition.name]) for condition in known):
                return known
        return ()


def option(
    default: Any,
    values: Values,
    meaning: str,
    *,
    can_be_none: bool | None = None,
    needs: Iterable[Condition | Conditions] = (),
    off: Any = NEVER,
) -> Any:
    """Declare a field of a dataclass of options; one whose default is None can be none."""
    about = {
        "values": values,
        "meaning": meaning,
        "can_be_none": default is None if can_be_none is None else can_be_none,
        "needs": tuple(need if isinstance(need, tuple) else (need,) for need in needs),
        "off": off,
    }
    return field(default=default, metadata=about)


def with_default(owner: type, name: str, default: Any, **changes: Any) -> Any:
    """Declare a field like the owner's, with another default and these changes."""
    (known,) = (known for known in fields(owner) if known.name == name)
    return option(default, **{**known.metadata, **changes})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes."""

    seed: int = option(0, Number("[0, inf)", whole=True), "seed of the views, where there are views")

    def __post_init__(self) -> None:
        for name, declared in declarations(type(self)).items():
            value = getattr(self, name)
            if value is not None or not declared.can_be_none:
                declared.values.check(name, value)


def declarations(kind: type[Options]) -> dict[str, Declaration]:
    """The options of that kind by name."""
    assert all(known.default is not MISSING for known in fields(kind))
    return {known.name: Declaration(known.name, known.default, **known.metadata) for known in fields(kind)}


def layered(kind: type[Options], below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` over `below`, dropping what `above` makes ineffective in `below`."""
    known = declarations(kind)
    defaults = {name: declared.default for name, declared in known.items()}
    kept, overridden = dict(below), set(above)
    while True:
        values = {**defaults, **kept, **above}
        idle = [name for name in kept if any(need.name in overridden for need in known[name].unmet(values))]
        if not idle:
            return {**kept, **above}
        for name in idle:  # what depends on it may be idle now
            del kept[name]
        overridden.update(idle)


def build_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """The options from a mapping; refuses unknown names, and what would have no effect."""
    known = declarations(kind)
    check_names(given, known, "option")
    options = kind(**given)
    for name in ineffective(kind, given):
        unmet = known[name].unmet(vars(options))
        found = " and ".join(f"{condition.name}={vars(options)[condition.name]!r}" for condition in unmet)
        needed = " or ".join(condition.words for condition in unmet)
        raise ConfigError(f"{name}: has no effect with {found}: set {needed}, or leave {name} out")
    return options


def ineffective(kind: type[Options], given: Mapping[str, Any]) -> list[str]:
    """Names of the given options that would have no effect with the others."""
    known = declarations(kind)
    values = {**{name: declared.default for name, declared in known.items()}, **given}
    return [
        name
        for name, value in given.items()
        if name in known and value != known[name].off and known[name].unmet(values)
    ]


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse unknown names; one of a former version is answered with what to write instead."""
    for name in given:
        if name in REMOVED:
            raise ConfigError(f"{name}: is no longer an option: {REMOVED[name]}")
        if name not in known:
            raise unknown_name(what, name, known)
