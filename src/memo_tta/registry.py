"""Tables of named things; looking up an unknown name raises an error that lists the choices."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from memo_tta.errors import UnknownName

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """A dict from name to entry; a missing name raises UnknownName with the choices and the closest match."""

    def __init__(self, kind: str, entries: Mapping[str, Entry]):
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: object) -> Entry:
        raise unknown_name(self.kind, name, self)


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> UnknownName:
    """Return the error for an unknown name, with the choices and the closest match."""
    choices = list(choices)
    near = get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownName(f"unknown {kind} {name!r}: choose from {', '.join(choices)}{hint}")
