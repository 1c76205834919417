"""A method in one line: its row of the table of methods, and the options that differ from it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memo_tta.methods.options import declarations

if TYPE_CHECKING:
    from memo_tta.methods.method import Method

Values = Mapping[str, Any]


def describe_method(method: "Method[Any]") -> str:
    """Return the row whose options are nearest for the method's model, those that differ, and the model."""
    rows = [(name, _differences(method, defaults)) for name, defaults in _rows(method)]
    # First of all, a method is the views that it uses.
    name, changes = min(rows, key=lambda row: ("augment" in row[1], len(row[1])))
    changed = ", ".join(f"{option}={_text(value)}" for option, value in changes.items())
    return f"{name}{f'({changed})' if changed else ''} on {method.classifier.name}"


def _rows(method: "Method[Any]") -> list[tuple[str, Values]]:
    """Return the rows of the method's class, or the class itself if it has none, with their options."""
    from memo_tta.methods import METHODS  # not above: the table imports the classes that this describes

    kind, classifier = type(method), method.classifier
    found: list[tuple[str, Values]] = [
        (name, vars(entry.resolve(classifier.settings, {}, classifier.size)))
        for name, entry in METHODS.items()
        if entry.method is kind
    ]
    own = {name: declared.default for name, declared in declarations(kind.options_type).items()}
    return found or [(kind.__name__, own)]


def _differences(method: "Method[Any]", defaults: Values) -> Values:
    values = {name: getattr(method.options, name) for name in defaults}
    return {name: value for name, value in values.items() if value != defaults[name]}


def _text(value: Any) -> str:
    """Return the name of a function or class, or the value as Python writes it."""
    return getattr(value, "__name__", None) or repr(value)
