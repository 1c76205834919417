"""`memo methods`, `memo models` and `memo datasets`: tables of what is available."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from memo_tta.cli.inspection import describe, usable_methods
from memo_tta.cli.model_options import ModelChoice, loading_options

if TYPE_CHECKING:
    from memo_tta.models.classifier import Classifier

PIPE_WIDTH = 160  # columns when the output is not a terminal
SHOWN = (
    "optimizer",
    "lr",
    "n_views",
    "augment",
    "prior_strength",
    "skip_margin",
    "clean_strength",
    "predict",
)


@click.command(epilog="Example: memo methods memo")
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the methods, or the options of the method NAME with their defaults and meaning."""
    from memo_tta.methods import METHODS
    from memo_tta.views.crop_flip import PADDED_UP_TO

    if name is not None:
        entry = METHODS[name]
        click.echo(f"{name}: {entry.about}")
        table = Table("option", "default", "values", "meaning", box=None, pad_edge=False)
        table.columns[0].no_wrap = True
        large = vars(entry.resolve({}, {}, PADDED_UP_TO + 1))
        for option in entry.declarations.values():
            default, on_large = str(option.default), str(large[option.name])
            if on_large != default:
                untuned = " if the model was not tuned" if option.name in entry.untuned else ""
                default = f"{default}; {on_large} above {PADDED_UP_TO} pixels{untuned}"
            table.add_row(*map(escape, (option.name, default, option.shown_values, option.meaning)))
    else:
        table = Table("method", "batch size", "state", "gradient", "what it does", box=None, pad_edge=False)
        table.columns[0].no_wrap = True
        for key, entry in METHODS.items():
            options = vars(entry.resolve({}, {}))
            state = "online" if options.get("online") else "none"
            gradient = "yes" if entry.method.needs_gradients else "no"
            table.add_row(key, str(options.get("batch_size", 1)), state, gradient, entry.about)
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)


@click.command(epilog="Example: memo models resnet50, or memo models onnx:model.onnx --mean 0.5 --std 0.5")
@click.argument("name", required=False)
@loading_options
def models(name: str | None, **loading: Any) -> None:
    """List the named models, or describe the model NAME: its input, its labels, and the methods for it.

    NAME is written as for --model; a model of another library or from a file is loaded.
    """
    from memo_tta.models.zoo import ZOO

    if name is None:
        _list_models()
    elif name in ZOO:
        _describe_named(name)
    else:
        _describe_loaded(ModelChoice(name, **loading))


def _list_models() -> None:
    import torch

    from memo_tta.class_lists import class_list
    from memo_tta.models.libraries import LIBRARIES, USER_FILE
    from memo_tta.models.zoo import ZOO, bundled_error

    table = Table("model", "what it is", "parameters", "weights", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for key, entry in ZOO.items():
        with torch.device("meta"):
            count = sum(p.numel() for p in entry.build(len(class_list(entry.classes))).parameters())
        error = bundled_error(key)
        weights = "memo data get" if entry.package_weights else "--weights"
        weights = weights if error is None else _bundled(error)
        table.add_row(key, entry.about, f"{count:,}", weights)
    others = Table("other models", "what they are", box=None, pad_edge=False)
    for library in (*LIBRARIES.values(), USER_FILE):
        others.add_row(library.form, library.about)
    console = Console()
    console.print(table)
    console.print()
    console.print(others)


def _describe_named(name: str) -> None:
    """Show a model of the zoo, whose weights need not be installed."""
    from memo_tta.methods import METHODS
    from memo_tta.models.zoo import ZOO, bundled_error, how_to_get, outline

    entry, error, classifier = ZOO[name], bundled_error(name), outline(name)
    memo = vars(METHODS["memo"].resolve(entry.settings, {}, classifier.size))
    settings = {f"memo.{key}": str(memo[key]) for key in dict.fromkeys([*entry.settings, *SHOWN])}
    weights = how_to_get(name) if error is None else _bundled(error)
    _show(f"{name}: {entry.about}", classifier, {**settings, "weights": weights})


def _describe_loaded(choice: ModelChoice) -> None:
    _show(choice.model, choice.load(), {})


def _show(title: str, classifier: "Classifier", more: Mapping[str, str]) -> None:
    """Show what a classifier takes, and which methods can be used with it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in (*describe(classifier), *more.items(), *usable_methods(classifier)):
        table.add_row(key, escape(value))
    click.echo(title)
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)


def _bundled(error: float) -> str:
    return f"bundled, {error:.2f} % error"


@click.command(epilog="Example: memo datasets")
def datasets() -> None:
    """List the named data sets: whether they are on disk, and how to get them."""
    from memo_tta.data.catalog import CATALOG
    from memo_tta.data.fetch.sources import is_present
    from memo_tta.files import data_folder

    table = Table("data set", "what it is", "on disk", "get it with", box=None, pad_edge=False)
    for name, entry in CATALOG.items():
        is_bundled = not entry.folder_name
        on_disk = "yes" if is_bundled or is_present(entry.folder_name) else "no"
        how_to_get = "bundled" if is_bundled else f"memo data get {entry.folder_name}"
        table.add_row(name, entry.about, on_disk, how_to_get)
    on_disk = "yes" if is_present("frost") else "no"
    table.add_row("frost", "photographs for the frost corruption", on_disk, "memo data get frost")
    console = Console()
    console.print(table)
    console.print(
        f"\nThey are stored in {data_folder()} ($MEMO_DATA), each in a folder of its name. Other data sets: "
        "a folder with one sub-folder per class, or an .npz file with arrays x and y. NAME+fog:3 is NAME "
        "corrupted by fog of severity 3."
    )
