"""The tables of docs/peers.md, from docs/peers.csv and docs/peers.json."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memo_tta.data.corruptions import CORRUPTIONS
from memo_tta.evaluation.comparison import compare, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from studies.page_markers import fill_page
from studies.peers.entries import ENTRIES
from studies.result_files import blocks, read_csv

LARGE, SMALL, LEVELS = 224, 32, (3, 5)  # pixels and levels of the compared corruptions

Check = Mapping[str, Any]  # what `checks` found for one entry on one model with one number of images


def write(docs: Path) -> None:
    """Write the tables whose figures are there."""
    path = docs / "peers.json"
    figures = json.loads(path.read_text("utf-8")) if path.exists() else {}
    found = blocks(read_csv(docs / "peers.csv"))
    fill_page(
        docs / "peers.md",
        {
            "versions": lambda _: _if_there(figures, "versions", versions),
            "attempts": lambda _: _if_there(figures, "attempts", attempts),
            "checks": lambda _: _if_there(figures, "checks", checks),
            "refusals": lambda _: _if_there(figures, "checks", refusals),
            "entries": lambda _: entries(),
            "errors": lambda model: errors(found.get(model), figures.get("costs", {}).get(model)),
            "corruptions": lambda _: _if_there(figures, "corruptions", corruptions),
        },
    )


def _if_there(figures: Mapping[str, Any], key: str, table: Callable[[Any], str]) -> str | None:
    return table(figures[key]) if key in figures else None


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([table_row(heads), "|---" * len(heads) + "|", *map(table_row, rows)])


def code(text: str) -> str:
    """Return text as code, also if it has backticks."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def versions(found: Mapping[str, str]) -> str:
    """Return the versions as one sentence."""
    return ", ".join(f"{name} {version}" for name, version in found.items()) + "."


def attempts(found: Sequence[Mapping[str, str]]) -> str:
    """Return a row for each pip command, in order, with what came of the import after it."""
    rows = [
        (
            attempt["environment"],
            code(f"pip {attempt['pip']}"),
            code(attempt["statement"]),
            attempt["outcome"],
        )
        for attempt in found
    ]
    return table(("environment", "command", "then", "outcome"), rows)


def entries() -> str:
    """Return how each entry of the peers is built."""
    rows = [(entry.package, name, code(entry.code)) for name, entry in ENTRIES.items()]
    return table(("package", "entry", "code"), [row for row in rows if row[0] != "memo-tta"])


def checks(found: Mapping[str, Mapping[str, Mapping[str, Check]]]) -> str:
    """Return a row for each entry: where it runs, whether it repeats, and what it leaves behind."""
    heads = ("package", "entry", *found, "same answer twice", "model afterwards", "under `no_grad`")
    rows = []
    for name in next(iter(found.values())):
        by_model = {model: results[name] for model, results in found.items()}
        every = [check for sizes in by_model.values() for check in sizes.values()]
        ran = [check for check in every if "error" not in check]
        row = (ENTRIES[name].package, name, *map(where_it_runs, by_model.values()))
        rows.append((*row, repeats(ran), afterwards(every), without_gradients(ran)))
    return table(heads, rows)


def where_it_runs(sizes: Mapping[str, Check]) -> str:
    """Return the outcome on one image and on several, once if they agree."""
    outcomes = {size: _outcome(check) for size, check in sizes.items()}
    if len(set(outcomes.values())) == 1:
        return next(iter(outcomes.values()))
    return "; ".join(f"{size}: {outcome}" for size, outcome in outcomes.items())


def _outcome(check: Check) -> str:
    if "error" in check:
        return check["error"].split(":")[0]
    if not check["finite"]:
        return "NaN"
    return "NaN loss" if check["loss"] == "nan" else "runs"


def repeats(ran: Sequence[Check]) -> str:
    """Return whether the same input gave the same logits again, bit for bit."""
    return _shares(check["repeats"] for check in ran if check["finite"])


def without_gradients(ran: Sequence[Check]) -> str:
    """Return whether the entry runs under torch.no_grad(), or which errors come."""
    errors = {check["no_grad"].split(":")[0] for check in ran if check["no_grad"] is not None}
    return ", ".join(sorted(errors)) or _shares(check["no_grad"] is None for check in ran)


def _shares(answers: Iterable[bool]) -> str:
    found = set(answers)
    return {frozenset(): "", frozenset({True}): "yes", frozenset({False}): "no"}.get(
        frozenset(found), "sometimes"
    )


def afterwards(every: Sequence[Check]) -> str:
    """Return what the entry changed in the model that it was given, in any of the checks."""
    kinds = dict.fromkeys(kind for check in every for kind in check["changed"])
    answers = [check["answers"] for check in every if check["answers"] is not True]
    raised = sorted({answer.split(":")[0] for answer in answers if isinstance(answer, str)})
    changes = [f"{kind} changed" for kind in kinds] + [f"raises {error}" for error in raised]
    changes += ["answers differ"] if False in answers else []
    return ", ".join(changes) or "as before"


def refusals(found: Mapping[str, Mapping[str, Mapping[str, Check]]]) -> str:
    """Return each error once, with the entries and models where it came."""
    places: dict[str, dict[str, list[str]]] = {}
    for model, results in found.items():
        for name, sizes in results.items():
            for check in sizes.values():
                if "error" in check:
                    models = places.setdefault(check["error"], {}).setdefault(name, [])
                    models += [model] * (model not in models)
    lines = []
    for error, names in places.items():
        where = "; ".join(f"{name} ({', '.join(models)})" for name, models in names.items())
        lines.append(f"- {where}: {code(error)}")
    return "\n".join(lines)


def errors(block: ResultBlock | None, costs: Mapping[str, Mapping[str, float]] | None) -> str | None:
    """Return a row for each entry on one model: errors, changes to the bare model, time and memory."""
    if block is None or costs is None:
        return None
    heads = ("package", "entry", "at once", "clean, error %", "to source")
    heads += ("corrupted, error %", "to source", "time, clean / corrupted", "MiB")
    clean = _some_parts(block, is_clean=True)
    corrupted = _some_parts(block, is_clean=False)
    rows = [
        (
            *(ENTRIES[name].package, name, f"{cost['batch']:.0f}"),
            *(*_error_cells(clean, name), *_error_cells(corrupted, name)),
            f"{cost['clean']:.1f} / {cost['corrupted']:.1f}",
            f"{cost['mib']:.0f}",
        )
        for name, cost in costs.items()
    ]
    return table(heads, rows)


def _some_parts(block: ResultBlock, is_clean: bool) -> ResultBlock:
    parts = {shift: part for shift, part in block.parts.items() if (shift.severity == 0) is is_clean}
    return ResultBlock(block.dataset, parts)


def _error_cells(block: ResultBlock, name: str) -> tuple[str, str]:
    error = formatting.percent(mean_error(block, name)[0])
    if name == "source" or (change := compare(block, name, "source")) is None:
        return error, ""
    return error, f"{formatting.percentage_points(change.difference)} ({formatting.change_interval(change)})"


def corruptions(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for each corruption: whether the peer's runs, and how far the two differ."""
    heads = ("corruption", "`imagecorruptions`", "largest difference")
    heads += tuple(f"change at {LARGE} pixels, level {level}" for level in LEVELS)
    heads += (f"change at {SMALL} pixels, level {LEVELS[-1]}", "time, ours / theirs")
    return table(heads, [list(_corruption_row(name, found)) for name in CORRUPTIONS])


def _corruption_row(name: str, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    large = [found[f"{LARGE} {name} {level}"] for level in LEVELS]
    small = found[f"{SMALL} {name} {LEVELS[-1]}"]
    problems = {each["error"] for each in large if "error" in each}
    yield name
    yield "; ".join(map(code, sorted(problems))) or "runs"
    if problems:
        yield ""
    else:
        is_random = any(each["random"] for each in large)
        yield "drawn at random" if is_random else f"{max(each['largest'] for each in large):.0f}"
    for each in (*large, small):
        yield f"{each['theirs']:.1f} / {each['ours']:.1f}" if "theirs" in each else f"– / {each['ours']:.1f}"
    yield ", ".join(f"{each['time']:.1f}" for each in large if "time" in each)
