"""Whether a value that was read from JSON has the type that an annotation asks for."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin


def fits(value: object, annotation: Any) -> bool:
    """Return whether the value fits, with lists for `Sequence` and objects for `Mapping`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if origin is UnionType:
        return any(fits(value, choice) for choice in arguments)
    if origin is Sequence:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in cast(list[object], value))
    if origin is Mapping:
        return isinstance(value, dict) and all(
            fits(item, arguments[1]) for item in cast(dict[str, object], value).values()
        )
    return type(value) is (NoneType if annotation is None else annotation)
