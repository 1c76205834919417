"""The config file that `memo advise` and `memo tune` write, and other commands take with --config."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def config_text(
    method: str | None,
    tables: Mapping[str, Mapping[str, Any]],
    heading: Iterable[str],
    remarks: Iterable[str],
) -> str:
    """Return TOML that names a method, if there is one, and sets options, between comments."""
    lines = [*_comments(heading), ""]
    if method is not None:
        lines += [f"method = {json.dumps(method)}", ""]
    for name, options in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in options.items()), ""]
    return "\n".join([*lines, *_comments(remarks)]) + "\n"


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"# {line}".rstrip() for line in lines]


def _value(value: Any) -> str:
    return '"none"' if value is None else json.dumps(value)
