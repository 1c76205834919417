"""Options of methods, from the command line and from a TOML file."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import click

from memo_tta.errors import ConfigError
from memo_tta.registry import unknown_name

SERVE = "serve"  # the table for `memo serve`, beside the tables of the methods
METHOD = "method"  # the key that names the method to use


def adaptation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that set the options of methods."""
    for option in (
        click.option("--seed", type=int, help="Seed of the views [default: 0]."),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="TOML file, as of `memo advise` or `memo tune`: a method, and tables of options of methods.",
        ),
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set an option of the method (repeatable).",
        ),
    ):
        command = option(command)
    return command


def configured_method(config: Path | None) -> str | None:
    """Return the method that the config file names; None without one."""
    name = None if config is None else _read(config).get(METHOD)
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{config}: {METHOD}: expected the name of a method, got {name!r}")
    return name


def method_options(
    method: str, methods: Sequence[str], config: Path | None, options: Sequence[str], seed: int | None
) -> dict[str, Any]:
    """Return the options of a method: --seed overrides --option, which overrides the config file."""
    chosen = {} if config is None else _method_table(config, method, methods)
    chosen.update(_parse(option) for option in options)
    if seed is not None:
        chosen["seed"] = seed
    return chosen


def all_method_options(
    names: Sequence[str], methods: Sequence[str], config: Path | None, options: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the options of several methods, by method.

    METHOD.NAME=VALUE sets an option of one method, NAME=VALUE of all methods on which it has an effect.
    """
    from memo_tta.methods import METHODS
    from memo_tta.methods.options import check_names

    chosen = {name: {} if config is None else _method_table(config, name, methods) for name in names}
    declared = {name: METHODS[name].declarations for name in names}
    shared: dict[str, list[str]] = {}  # option without a method -> the methods that declare it
    for option in options:
        key, value = _parse(option)
        method, dot, field = key.rpartition(".")
        if dot and method not in names:
            raise unknown_name("method in --option", method, names)
        receivers = [method] if dot else [name for name in names if key in declared[name]]
        if not receivers:
            check_names([key], sorted({name for options in declared.values() for name in options}), "option")
        for name in receivers:
            chosen[name][field] = value
        if not dot:
            shared[key] = receivers
    for key, receivers in shared.items():
        ineffective = [name for name in receivers if key in METHODS[name].ineffective(chosen[name])]
        if ineffective != receivers:
            for name in ineffective:
                del chosen[name][key]
    return {name: table for name, table in chosen.items() if table}


def _parse(option: str) -> tuple[str, Any]:
    """Split NAME=VALUE, and read the value as TOML, or as a string if it is not TOML."""
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
    """Return the table [serve] of the config file, and the method that the file names.

    Raise if a key is not one of these names.
    """
    table = _as_table(path, SERVE, _read(path).get(SERVE, {}))
    for name in table:
        if name not in names:
            raise unknown_name(f"option in [{SERVE}] of {path}", name, names)
    method = configured_method(path)
    return table if method is None else {METHOD: method, **table}


def _method_table(path: Path, method: str, methods: Sequence[str]) -> dict[str, Any]:
    """Return the table of a method in the config file, or an empty one."""
    tables: dict[str, dict[str, Any]] = {}
    for name, value in _read(path).items():
        if name in (SERVE, METHOD):
            continue
        if name not in methods:
            raise unknown_name(f"method in {path}", name, methods)
        tables[name] = _as_table(path, name, value)
    # TOML has no null: the string "none" stands for None.
    return {key: None if value == "none" else value for key, value in tables.get(method, {}).items()}


def _as_table(path: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a table [{name}], got {value!r}")
    return cast(dict[str, Any], value)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None
