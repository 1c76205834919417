"""Spans of time as people write them."""

import re

from memo_tta.errors import ConfigError

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
SPAN = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)")


def parse_seconds(name: str, text: str) -> float:
    """Return the seconds of a text like 100ms, 0.5 s or 10min; `name` is the option's, for messages."""
    found = SPAN.fullmatch(text.strip())
    units = ", ".join(UNITS)
    if found is None or (found[2] and found[2] not in UNITS) or float(found[1]) == 0:
        raise ConfigError(f"{name}: expected a time like 100ms, with one of the units {units}, got {text!r}")
    if not found[2]:
        raise ConfigError(f"{name}: {text} has no unit: write {text}ms or {text}s (units: {units})")
    return float(found[1]) * UNITS[found[2]]
