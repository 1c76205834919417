"""`memo methods` and `memo models`: what there is."""

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

    from memo_tta.models.zoo import ZOO

    table = Table("model", "what it is", "pixels", "parameters", "MEMO settings", box=None, pad_edge=False)
    for name, entry in ZOO.items():
        with torch.device("meta"):
            count = sum(p.numel() for p in entry.build().parameters())
        settings = "\n".join(f"{key} = {value}" for key, value in entry.settings.items())
        table.add_row(name, entry.about, str(entry.preprocessing["size"]), f"{count:,}", settings)
    console = Console()
    console.print(table)
    console.print("Their weights come from a file: --weights PATH (.safetensors, .pth or .npz).")
