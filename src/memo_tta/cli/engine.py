"""Where work runs: the options of every command that spreads it, and the one place that chooses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from memo_tta.workers import Engine


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--num-gpus", type=click.FloatRange(0), help="Ray: GPUs of a worker, or a part of one."),
        click.option("--num-cpus", type=click.IntRange(1), help="Ray: cores, and threads, of a worker [1]."),
        click.option(
            "--address", help="Ray: HOST:PORT of a cluster, or auto [$RAY_ADDRESS, or one made here]."
        ),
        click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True),
        click.option("--workers", default="auto", show_default=True, help="Processes, or auto."),
    ):
        command = option(command)
    return command


def choose_engine(
    engine: str, workers: str, address: str | None, num_cpus: int | None, num_gpus: float | None
) -> "Engine[Any, Any]":
    count = _count(workers)
    if engine == "ray":
        from memo_tta.workers.ray import Ray

        return Ray(count, address, num_cpus or 1, num_gpus or 0)
    if address or num_cpus or num_gpus:
        raise click.UsageError("--address, --num-cpus, --num-gpus: only with --engine ray")
    from memo_tta.workers import Processes

    return Processes(count)


def _count(workers: str) -> int | None:
    if workers == "auto":
        return None
    if not workers.isdecimal() or int(workers) < 1:
        raise click.UsageError(f"--workers: expected a number or auto, got {workers!r}")
    return int(workers)
