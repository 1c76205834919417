"""Options for commands that distribute work, and the choice of the engine that runs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from memo_tta.workers import Engine


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `choose_engine` takes."""
    for option in (
        click.option(
            "--num-gpus", type=click.FloatRange(0), help="With Ray: GPUs per worker, possibly a fraction."
        ),
        click.option(
            "--num-cpus", type=click.IntRange(1), help="With Ray: cores and threads per worker [default: 1]."
        ),
        click.option(
            "--address",
            help="With Ray: HOST:PORT of a cluster, or auto "
            "[default: $RAY_ADDRESS, or start a cluster on this machine].",
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Run workers as processes on this machine, or on a Ray cluster.",
        ),
        click.option(
            "--workers",
            default="auto",
            show_default=True,
            help="Number of workers, or auto: as many as cores and memory allow.",
        ),
    ):
        command = option(command)
    return command


def choose_engine(
    engine: str, workers: str, address: str | None, num_cpus: int | None, num_gpus: float | None
) -> "Engine[Any, Any]":
    """Return the engine that the command-line options ask for."""
    count = _parse_workers(workers)
    if engine == "ray":
        from memo_tta.workers.ray import Ray

        return Ray(count, address, num_cpus or 1, num_gpus or 0)
    if address or num_cpus or num_gpus:
        raise click.UsageError("--address, --num-cpus and --num-gpus work only with --engine ray")
    from memo_tta.workers import Processes

    return Processes(count)


def _parse_workers(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise click.UsageError(f"--workers: expected a positive number or auto, got {text!r}")
    return int(text)
