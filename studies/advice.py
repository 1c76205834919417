"""Compare the advice of several races with the full grid of candidates: python -m studies.advice --help.

Each race has its own seed: its own images, views and corruptions. The grid evaluates all candidates on all
images of seed 0.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from memo_tta.evaluation.advice import Advice, AdviceRequest, advise, prepare_race
from memo_tta.evaluation.comparison import compare
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.race import Race
from memo_tta.evaluation.recommendation import SOURCE, assess, recommend
from memo_tta.evaluation.time_limits import parse_seconds
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.progress import progress
from memo_tta.report.markdown import table_row
from memo_tta.report.suggestion import change_with_interval
from memo_tta.workers import Processes

HEADS = ("seed", "recommended", "shifted", "clean", "share of the grid's time", "error above the grid's best")


@click.command(help=__doc__)
@click.argument("model")
@click.argument("data")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--seeds", default=5, show_default=True, help="Number of races.")
@click.option("--limit", default=100, show_default=True, help="Images of a race.")
@click.option("--time-limit", default="10min", show_default=True, help="Of a race.")
@click.option("--workers", default=2, show_default=True, help="Number of processes.")
@click.option("--no-grid", is_flag=True, help="Run the races only.")
def main(
    model: str, data: str, folder: Path, seeds: int, limit: int, time_limit: str, workers: int, no_grid: bool
) -> None:
    classifier, advice = load(model), dict[int, tuple[Race, Advice]]()
    with Processes(workers) as engine, progress("predictions") as update:
        for seed in range(seeds):
            race = _race(model, data, folder / f"seed-{seed}", classifier, limit, seed)
            advice[seed] = race, advise(race, engine, parse_seconds("--time-limit", time_limit), update)
        grid = None if no_grid else _race(model, data, folder / "grid", classifier, limit, 0)
        if grid is not None:
            grid.run_grid(engine, update)
    click.echo(table_row(HEADS))
    click.echo("|---" * len(HEADS) + "|")
    for seed, (race, found) in advice.items():
        click.echo(_row(seed, race, found, grid))
    for line in [] if grid is None else _grid_rows(grid):
        click.echo(line)


def _race(model: str, data: str, folder: Path, classifier: Classifier, limit: int, seed: int) -> Race:
    job = EvaluationJob(data=(data,), model=model, limit=limit, seed=seed)
    return prepare_race(AdviceRequest(job), folder, classifier)


def _row(seed: int, race: Race, advice: Advice, grid: Race | None) -> str:
    chosen = advice.recommendation.chosen
    changes = [
        "" if change is None else change_with_interval(change) for change in (chosen.gain, chosen.harm)
    ]
    ratios = ["", ""] if grid is None else [f"{_time_share(race, grid):.2f}", _regret(chosen.method, grid)]
    return table_row([str(seed), chosen.method, *changes, *ratios])


def _time_share(race: Race, grid: Race) -> float:
    """Return the race's predictions over the grid's, each with the candidate's mean time in the grid."""
    seconds = {name: grid.mean_seconds(name) for name in grid.candidates}
    raced, all_ = (sum(each.predictions(name) * seconds[name] for name in seconds) for each in (race, grid))
    return raced / all_


def _regret(method: str, grid: Race) -> str:
    """Return by how much the method's error on shifted images exceeds that of the best allowed one."""
    clean, shifted = grid.results()
    found = [assess(name, shifted, clean) for name in shifted.methods]
    best = min(
        (each for each in found if not each.is_harmful(grid.limits)),
        key=lambda each: each.change(grid.limits),
    )
    change = None if method == best.method else compare(shifted, method, best.method)
    return f"0.0 ({best.method})" if change is None else f"{change_with_interval(change)} ({best.method})"


def _grid_rows(grid: Race) -> Iterator[str]:
    clean, shifted = grid.results()
    yield f"grid: {recommend(shifted, clean, grid.limits).chosen.method}"
    for name in shifted.methods:
        found = assess(name, shifted, clean)
        if name != SOURCE and found.gain is not None and found.harm is not None:
            yield f"{name}: {change_with_interval(found.gain)}; clean {change_with_interval(found.harm)}"


if __name__ == "__main__":
    main()
