"""Method options from the command line and from a TOML file."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from memo_tta.errors import ConfigError
from memo_tta.registry import unknown_name

SERVE = "serve"  # the table of `memo serve`, beside those of the methods


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that names a model and a method's options."""
    for option in (
        click.option("--seed", type=int, help="Seed of the views [default: 0]."),
        click.option("--config", type=click.Path(path_type=Path), help="TOML file, one table per method."),
        click.option(
            "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the method."
        ),
        click.option("--weights", type=click.Path(path_type=Path), help=".safetensors, .pth or .npz file."),
        click.option("--model", required=True, help="A name from `memo models`."),
    ):
        command = option(command)
    return command


def method_options(
    method: str, methods: Sequence[str], config: Path | None, options: Sequence[str], seed: int | None
) -> dict[str, Any]:
    """The config file's table for the method, then --option, then --seed; the last word wins."""
    chosen = {} if config is None else _table(config, method, methods)
    chosen.update(_parse(option) for option in options)
    if seed is not None:
        chosen["seed"] = seed
    return chosen


def all_method_options(
    names: Sequence[str], methods: Sequence[str], config: Path | None, options: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The options of several methods.

    METHOD.NAME=VALUE is for one of them, NAME=VALUE for all on which it has an effect.
    """
    from memo_tta.methods import METHODS
    from memo_tta.methods.options import check_names

    chosen = {name: {} if config is None else _table(config, name, methods) for name in names}
    known = {name: METHODS[name].declarations for name in names}
    shared: dict[str, list[str]] = {}
    for option in options:
        key, value = _parse(option)
        method, dot, field = key.rpartition(".")
        if dot and method not in names:
            raise unknown_name("method in --option", method, names)
        takers = [method] if dot else [name for name in names if key in known[name]]
        if not takers:
            check_names([key], sorted({name for options in known.values() for name in options}), "option")
        for name in takers:
            chosen[name][field] = value
        if not dot:
            shared[key] = takers
    for key, takers in shared.items():
        idle = [name for name in takers if key in METHODS[name].ineffective(chosen[name])]
        if idle != takers:
            for name in idle:
                del chosen[name][key]
    return {name: table for name, table in chosen.items() if table}


def _parse(option: str) -> tuple[str, Any]:
    name, equals, text = option.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--option: expected NAME=VALUE, got {option!r}")
    if text.lower() == "none":
        return name, None
    try:
        return name, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name, text


def serve_table(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The config file's table [serve], whose keys are the command's options."""
    table = _read(path).get(SERVE, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: expected a table [{SERVE}], got {table!r}")
    for name in table:
        if name not in names:
            raise unknown_name(f"option in [{SERVE}] of {path}", name, names)
    return table


def _table(path: Path, method: str, methods: Sequence[str]) -> dict[str, Any]:
    content = {name: table for name, table in _read(path).items() if name != SERVE}
    for name, table in content.items():
        if name not in methods:
            raise unknown_name(f"method in {path}", name, methods)
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: expected a table [{name}], got {table!r}")
    # TOML has no word for nothing.
    return {key: None if value == "none" else value for key, value in content.get(method, {}).items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None
