"""The page of the methods: every row of the table, with what it needs and its options."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from memo_tta.cli.inspection import usable_methods
from memo_tta.methods import METHODS, MethodEntry
from memo_tta.methods.options import Declaration
from memo_tta.models.classifier import Classifier
from memo_tta.views.crop_flip import PADDED_UP_TO
from studies.reference.markdown import prose, sentence, table

INTRO = f"""# Methods

Every row of the table of methods: `mt.method("restore", classifier, n_views=8)` in Python, `--method restore
--option n_views=8` on the command line. [Which method to use](../advice.md) on your data, `memo advise` finds
out. Generated from the code by `python -m studies.reference`.

Below each method are its options and their defaults; [what they mean](#options) is said once. The settings of
a tuned model, such as the paper's, replace the defaults. *Large* marks those for images of more than
{PADDED_UP_TO} pixels, *untuned* those for models without settings of their own."""


class _Small(nn.Module):
    """A network with this norm layer; a rotation head comes with `_Joint`."""

    def __init__(self, *norm: nn.Module):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), *norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class _Joint(_Small):
    def rotation_logits(self, x: Tensor) -> Tensor:
        return self.features(x)


def _probes() -> dict[str, Classifier]:
    """Return classifiers that have ever more, by what the first method that fails on one of them needs."""
    arguments: Any = {"size": 8, "mean": 0.5, "std": 0.5}
    return {
        "a module with parameters": Classifier.from_function(lambda batch: batch, **arguments),
        "norm layers": Classifier(_Small(), **arguments),
        "layers with running statistics, as batch norm has them": Classifier(
            _Small(nn.GroupNorm(2, 4)), **arguments
        ),
        "a model trained with `memo train --joint`": Classifier(_Small(nn.BatchNorm2d(4)), **arguments),
        "": Classifier(_Joint(nn.BatchNorm2d(4)), **arguments),
    }


def page() -> str:
    """Return the page."""
    probes = _probes()
    usable = {need: dict(usable_methods(classifier)) for need, classifier in probes.items()}
    needs = {
        name: [need for need, answers in usable.items() if answers[f"method {name}"] != "yes"]
        for name in METHODS
    }
    built = {name: entry(probes[""]) for name, entry in METHODS.items()}
    overview = [
        (f"[`{name}`](#{name})", str(one.points), _yes(one.needs_gradients), _yes(one.online))
        for name, one in built.items()
    ]
    rows = [_method(name, needs[name]) for name in METHODS]
    header = ("method", "images at once", "gradients", "learns on")
    return "\n\n".join([INTRO, table(header, overview), *rows, "## Options", *_options()]) + "\n"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _method(name: str, needs: list[str]) -> str:
    """Return the section of a method: what it does, what it needs, its defaults."""
    entry = METHODS[name]
    base = next(other for other, row in METHODS.items() if row.method is entry.method)
    parts = [f"## {name}", prose(sentence(entry.about))]
    rows = _defaults(entry)
    if base == name:
        parts.append(prose((inspect.getdoc(entry.method) or "").split("\n\nOptions:")[0]))
    else:
        same = _defaults(METHODS[base])
        rows = {option: row for option, row in rows.items() if row != same[option]}
    parts.append(f"Needs {needs[-1]}." if needs else "Works with any model, and with any function.")
    if base != name:
        parts.append(f"Its options are those of [`{base}`](#{base}), with these defaults:")
    return "\n\n".join([*parts, "\n".join(f"- [`{name}`](#{name}): {row}" for name, row in rows.items())])


def _defaults(entry: MethodEntry) -> dict[str, str]:
    """Return the default of each option and, if it is another, that on large images."""
    large: Mapping[str, Any] = vars(entry.resolve({}, {}, PADDED_UP_TO + 1))
    found: dict[str, str] = {}
    for name, option in entry.declarations.items():
        found[name] = f"`{option.default!r}`"
        if large[name] != option.default:
            untuned = ", untuned" if name in entry.untuned else ""
            found[name] += f"; `{large[name]!r}` (large{untuned})"
    return found


def _options() -> list[str]:
    """Return the sections of all options; where methods differ, what an option means to each of them."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for method, entry in METHODS.items():
        for one in entry.declarations.values():
            meanings.setdefault(one.name, {}).setdefault(_meaning(one), []).append(method)
    sections: list[str] = []
    for name, found in sorted(meanings.items()):
        lines = [
            f"- For {', '.join(f'`{method}`' for method in methods)}: {meaning}"
            for meaning, methods in found.items()
        ]
        (first, *others) = found
        sections.append(f"### {name}\n\n" + ("\n".join(lines) if others else sentence(first)))
    return sections


def _meaning(option: Declaration) -> str:
    needs = [" or ".join(f"`{condition.remedy}`" for condition in either) for either in option.needs]
    effect = f" It has an effect only with {', and with '.join(needs)}." if needs else ""
    return f"{prose(option.meaning)}. Values: {prose(option.shown_values)}.{effect}"
