"""Find the class of a model that has the same name as a class of a data set."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache

from memo_tta.class_lists import class_list
from memo_tta.errors import ConfigError


def _exact(label: str) -> AbstractSet[str]:
    return {label}


def _plain(label: str) -> set[str]:
    """Return the name in lower case, with spaces for underscores and hyphens."""
    return {" ".join(label.casefold().replace("_", " ").replace("-", " ").split())}


@cache
def synonyms(label: str) -> frozenset[str]:
    """Return all names of the class: those between commas, and ImageNet's word and WordNet id for them."""
    names = {name for part in label.split(",") for name in _plain(part) if name}
    return frozenset(names | {_imagenet_names()[name] for name in names if name in _imagenet_names()})


@cache
def _imagenet_names() -> Mapping[str, str]:
    """Return the WordNet id of each of ImageNet's words, and the word of each id."""
    words = [_plain(word).pop() for word in class_list("imagenet")]
    wnids = class_list("imagenet-wnids")
    return dict(zip([*words, *wnids], [*wnids, *words], strict=True))


# From the strictest to the loosest: what two names of one class have in common.
KEYS: Mapping[str, Callable[[str], AbstractSet[str]]] = {
    "by name": _exact,
    "by name without case and underscores": _plain,
    "by synonym or WordNet id": synonyms,
}


def match_names(source: str, labels: Mapping[int, str], names: Sequence[str]) -> tuple[dict[int, int], str]:
    """Return the index in `names` of each label that is found there, and the loosest key that it took.

    A label that matches two names, or two labels that match one, are an error that begins with `source`.
    """
    found: dict[int, int] = {}
    loosest = ""
    for how, keys in KEYS.items():
        index = _index_by_key(keys, names)
        for place, label in labels.items():
            matching = {i for key in keys(label) for i in index.get(key, ())}
            if place in found or not matching:
                continue
            if len(matching) > 1:
                listed = ", ".join(f"{names[i]!r} ({i})" for i in sorted(matching))
                raise ConfigError(
                    f"{source}: the class {label!r} could be any of the model's {listed}: "
                    "name it exactly as one of them, or name the classes by index"
                )
            (found[place],), loosest = matching, how
    _check_different(source, labels, found, names)
    return found, loosest


def _index_by_key(keys: Callable[[str], AbstractSet[str]], names: Sequence[str]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        for key in keys(name):
            index.setdefault(key, []).append(position)
    return index


def _check_different(
    source: str, labels: Mapping[int, str], found: Mapping[int, int], names: Sequence[str]
) -> None:
    """Raise if two labels were found to be the same class."""
    first: dict[int, int] = {}
    for place, position in sorted(found.items()):
        if (other := first.setdefault(position, place)) != place:
            raise ConfigError(
                f"{source}: the classes {labels[other]!r} and {labels[place]!r} are both the model's "
                f"{names[position]!r}: merge them, or rename one"
            )
