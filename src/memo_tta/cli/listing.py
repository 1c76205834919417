"""`memo methods`, `memo models` and `memo datasets`: what there is."""

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table


@click.command(epilog="Example: memo methods memo")
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the methods; with a NAME, that method's options and their defaults."""
    from memo_tta.methods import METHODS

    if name is not None:
        entry = METHODS[name]
        click.echo(f"{name}: {entry.about}")
        table = Table("option", "default", box=None, pad_edge=False)
        for option, default in sorted(asdict(entry.options).items()):
            table.add_row(option, str(default))
    else:
        table = Table("method", "points", "state", "what it does", box=None, pad_edge=False)
        for key, entry in METHODS.items():
            options = asdict(entry.options)
            state = "online" if options.get("online") else "none"
            table.add_row(key, str(options.get("batch_size", 1)), state, entry.about)
    Console().print(table)


@click.command(epilog="Example: memo models")
def models() -> None:
    """List the models that have a name: what they are, their input, the paper's MEMO settings."""
    import torch

    from memo_tta.models.zoo import ZOO, shipped_error

    columns = ("model", "what it is", "pixels", "parameters", "weights", "MEMO settings")
    table = Table(*columns, box=None, pad_edge=False)
    for name, entry in ZOO.items():
        with torch.device("meta"):
            count = sum(p.numel() for p in entry.build().parameters())
        settings = "\n".join(f"{key} = {value}" for key, value in entry.settings.items())
        error = shipped_error(name)
        weights = "--weights PATH" if error is None else f"shipped, {error:.2f} % error"
        size = str(entry.preprocessing["size"])
        table.add_row(name, entry.about, size, f"{count:,}", weights, settings)
    console = Console()
    console.print(table)
    console.print(
        "\nErrors are on CIFAR-10's test images. --weights PATH: a .safetensors, .pth or .npz file."
    )


@click.command(epilog="Example: memo datasets")
def datasets() -> None:
    """List the data sets that have a name: whether they are here, where they go, how to get them."""
    from memo_tta.data.catalog import CATALOG
    from memo_tta.data.dataset import data_folder
    from memo_tta.data.sources import is_present

    table = Table("data set", "what it is", "here", "get it with", box=None, pad_edge=False)
    for name, entry in CATALOG.items():
        shipped = not entry.home
        here = "yes" if shipped or is_present(entry.home) else "no"
        table.add_row(name, entry.about, here, "comes along" if shipped else f"memo data get {entry.home}")
    here = "yes" if is_present("frost") else "no"
    table.add_row("frost", "photographs, for the corruption frost", here, "memo data get frost")
    console = Console()
    console.print(table)
    console.print(
        f"\nThey go to {data_folder()} ($MEMO_DATA), each to a folder of its name. Also a data set: a folder "
        "with a sub-folder per class, or an .npz with x and y. NAME+fog:3 is NAME under fog of level 3."
    )
