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
    "preset": "for preset='best' write mt.method('restore', classifier), or --method restore",
    "budget": "for budget='fast' write mt.method('memo-fast', classifier), or --method memo-fast",
    "budget_seconds": "write mt.Memo(classifier, n_views=16), or serve the model with a deadline",
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
        if value not in self._names:
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
class Declaration:
    """All there is to know of an option."""

    name: str
    default: Any
    values: Values
    meaning: str
    can_be_none: bool
    needs: tuple[str, Any] | None  # another option and its value, without which this has no effect

    @property
    def shown_values(self) -> str:
        return f"{self.values}, or none" if self.can_be_none else str(self.values)

    def lacks(self, others: Mapping[str, Any]) -> str | None:
        """The name of the option without which, among these values, it has no effect."""
        if self.needs is None:
            return None
        other, wanted = self.needs
        is_there = others[other] is not None if wanted is ANY else others[other] == wanted
        return None if is_there else other


ANY = object()  # of `needs`: anything but none


def option(
    default: Any,
    values: Values,
    meaning: str,
    *,
    can_be_none: bool | None = None,
    needs: tuple[str, Any] | None = None,
) -> Any:
    """Declare a field of a dataclass of options; one whose default is None can be none."""
    about = {
        "values": values,
        "meaning": meaning,
        "can_be_none": default is None if can_be_none is None else can_be_none,
        "needs": needs,
    }
    return field(default=default, metadata=about)


def with_default(owner: type, name: str, default: Any) -> Any:
    """Declare a field like the owner's, with another default."""
    (known,) = (known for known in fields(owner) if known.name == name)
    return field(default=default, metadata=known.metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes."""

    seed: int = option(0, Number("[0, inf)", whole=True), "seed of the views")

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
    """`above` over `below`, without what only `above` leaves without effect."""
    known = declarations(kind)
    values = {**{name: declared.default for name, declared in known.items()}, **below, **above}
    kept = {name: value for name, value in below.items() if known[name].lacks(values) not in above}
    return {**kept, **above}


def build_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """The options from a mapping; refuses unknown names, and what would have no effect."""
    known = declarations(kind)
    check_names(given, known, "option")
    options = kind(**given)
    for name in given:
        if (other := known[name].lacks(vars(options))) is not None:
            _, wanted = known[name].needs or (other, ANY)
            needed = other if wanted is ANY else f"{other}={wanted!r}"
            given_with = f"{other}={vars(options)[other]!r}"
            raise ConfigError(f"{name}: has no effect with {given_with}: set {needed}, or leave {name} out")
    return options


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse unknown names; one of a former version is answered with what to write instead."""
    for name in given:
        if name in REMOVED:
            raise ConfigError(f"{name}: is no longer an option: {REMOVED[name]}")
        if name not in known:
            raise unknown_name(what, name, known)
