"""The page of the Python interface: every public name, from its signature, its docstring and its comments."""

import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import memo_tta as mt
from memo_tta.methods import Method
from studies.reference.markdown import prose, table

INTRO = """# Python

Every public name, as `import memo_tta as mt` has it, and below them [what they return](#what-they-return).
Generated from the code by `python -m studies.reference`."""

WIDTH = 48  # of a signature in one line, on a phone
# What users of a method call; the rest of its functions are for those who write one.
METHOD_MEMBERS = {
    *("__call__", "predict", "predict_views", "explain", "reset"),
    *("points", "batch_points", "online", "needs_gradients"),
}
# A field of a class, and the comment behind it.
COMMENTED = re.compile(r"^    (\w+)(?:: | = )[^\n#]*  # (.+)$", re.MULTILINE)


def page() -> str:
    """Return the page."""
    public = {name: getattr(mt, name) for name in mt.__all__}
    overview = [(f"[`mt.{name}`](#mt{name.lower()})", _first_line(value)) for name, value in public.items()]
    sections = [_section(f"mt.{name}", value) for name, value in public.items()]
    returned = [_class_section(kind.__name__, kind) for kind in _returned(list(public.values()))]
    parts = [
        INTRO,
        table(("name", "what it is or does"), overview),
        *sections,
        "## What they return",
        *returned,
    ]
    return "\n\n".join(parts) + "\n"


def _section(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):
        return "\n\n".join([f"## {name}", _text(value), *_module_contents(value)])
    if inspect.isclass(value):
        return _class_section(name, value, level="##")
    return "\n\n".join([f"## {name}", _code(name, value), _text(value)])


def _module_contents(module: ModuleType) -> Iterator[str]:
    """Yield the names of a module, each with its first line."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if _is_public_function_of(module, name, value)
    ]
    found = {name: getattr(module, name) for name in names}
    yield "\n".join(f"- `{name}{_names(value)}`: {_first_line(value)}" for name, value in found.items())


def _names(value: Any) -> str:
    """Return the names of the parameters of a function, in parentheses."""
    return f"({', '.join(inspect.signature(value).parameters)})" if inspect.isfunction(value) else ""


def _is_public_function_of(module: ModuleType, name: str, value: Any) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def _class_section(name: str, kind: type[Any], level: str = "###") -> str:
    """Return the section of a class; without its signature if users do not build it."""
    parts = [f"{level} {name}"]
    is_built_by_users = level == "##" and not issubclass(kind, enum.Enum | Exception)
    if is_built_by_users:
        parts.append(_code(name, kind))
    parts.append(_text(kind))
    if issubclass(kind, Method) and kind is not Method:
        parts.append(
            "It has the functions and properties of every [Method](#method); "
            "[Methods](methods.md#options) describes its options."
        )
    values, functions = _members(kind)
    parts.append("\n".join(f"- `{key}`{about}" for key, about in values.items()))
    for key, function in functions.items():
        title = f"{kind.__name__}.{key}"
        name = title if inspect.ismethod(function) else key  # a class method is called on the class
        parts.append(f"{level}# `{title}`\n\n{_code(name, function)}\n\n{_text(function)}")
    return "\n\n".join(filter(None, parts))


def _members(kind: type[Any]) -> tuple[dict[str, str], dict[str, Callable[..., Any]]]:
    """Return what to say about the values that objects of a class have, and the functions to call."""
    values: dict[str, str] = {}
    functions: dict[str, Callable[..., Any]] = {}
    own = [base for base in kind.__mro__ if base.__module__.startswith("memo_tta")]
    for base in own:
        comments = dict(COMMENTED.findall(inspect.getsource(base)))
        for key, annotation in vars(base).get("__annotations__", {}).items():
            if _is_shown(kind, key) and (comments.get(key) or not issubclass(kind, Method)):
                comment = f": {prose(comments[key])}" if key in comments else ""
                values.setdefault(key, f" (`{_annotation(annotation)}`){comment}")
        if issubclass(kind, enum.Enum):
            values.update({key: f": {prose(comments[key])}" for key in kind.__members__ if key in comments})
    for key in dir(kind):
        static = inspect.getattr_static(kind, key)
        is_own = any(key in vars(base) for base in own)
        is_inherited = kind is not Method and issubclass(kind, Method) and hasattr(Method, key)
        if not _is_shown(kind, key) or not is_own or is_inherited:
            continue
        if isinstance(static, property | cached_property):
            values[key] = f": {_text(static)}"
        elif inspect.isfunction(static) or isinstance(static, classmethod | staticmethod):
            functions[key] = getattr(kind, key)
    return values, functions


def _is_shown(kind: type[Any], key: str) -> bool:
    if issubclass(kind, Method):
        return key in METHOD_MEMBERS
    return key == "__call__" or not key.startswith("_")


def _returned(values: list[Any]) -> list[type[Any]]:
    """Return the other classes of the package that these functions and classes return, directly or not."""
    found = list(values)
    for value in found:  # which grows on the way
        functions = [value] if inspect.isfunction(value) else []
        if inspect.isclass(value):
            properties = [one.fget for one in vars(value).values() if isinstance(one, property)]
            functions = [*_members(value)[1].values(), *properties]
        annotations = [typing.get_type_hints(function).get("return") for function in functions]
        found += [kind for kind in dict.fromkeys(_classes(annotations)) if kind not in found]
    return sorted(found[len(values) :], key=lambda kind: kind.__name__)


def _classes(annotations: list[Any]) -> Iterator[type[Any]]:
    """Yield the classes of the package in annotations, and in what these are made of."""
    for annotation in annotations:
        yield from _classes(list(typing.get_args(annotation)))
        kind = typing.get_origin(annotation) or annotation
        if inspect.isclass(kind) and kind.__module__.startswith("memo_tta"):
            yield kind
            yield from _classes(list(getattr(kind, "__orig_bases__", ())))


def _first_line(value: Any) -> str:
    return prose((inspect.getdoc(value) or "").split("\n")[0])


def _text(value: Any) -> str:
    return prose((inspect.getdoc(value) or "").split("\n\nOptions:")[0])


def _code(name: str, function: Any) -> str:
    """Return the signature, or every overload of it, as a block of code.

    The block is `py`: those that are `python` run in the tests.
    """
    forms = typing.get_overloads(function) if inspect.isfunction(function) else []
    lines = "\n".join(_signature(name, inspect.signature(form)) for form in forms or [function])
    return f"```py\n{lines}\n```"


def _signature(name: str, signature: inspect.Signature) -> str:
    items: list[str] = []
    needs_star = True  # before the first parameter that has to be named
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and needs_star:
            items.append("*")
        needs_star = needs_star and parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        items.append(_parameter(parameter))
    returns = signature.return_annotation
    end = f" -> {_annotation(returns)}" if returns not in (signature.empty, None) else ""
    line = f"{name}({', '.join(items)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n    ".join([f"{name}(", *(f"{item}," for item in items)]) + f"\n){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    is_annotated = parameter.annotation is not parameter.empty
    if is_annotated:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        value = parameter.default
        shown = f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)
        text += f" = {shown}" if is_annotated else f"={shown}"
    return text


def _annotation(annotation: Any) -> str:
    """Return an annotation without the modules of its classes."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)
    return re.sub(r"^ClassVar\[(.*)\]$", r"\1", text)
