"""A race of methods on labelled images: all on a few images, the promising ones on more."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.candidates import Candidate
from memo_tta.evaluation.comparison import compare
from memo_tta.evaluation.driver import OnRecords, evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.recommendation import SIGNIFICANT, SOURCE, Assessment, MethodLimits, assess
from memo_tta.evaluation.records import Record, SkippedPoint
from memo_tta.evaluation.results import ResultBlock, collect
from memo_tta.evaluation.store import open_for_reading
from memo_tta.files import atomic_file
from memo_tta.models.classifier import Classifier
from memo_tta.workers import Engine

FILE = "race.json"
ROUNDS = 3  # after round 0, in which one image tells how long each candidate takes
GRID_SHARE = 0.3  # of the time that all candidates would take on all images
USABLE_TIME = 0.75  # of the time limit: the rest is for starting workers, and for rounds that take longer
FEWEST = 4  # images of a round: fewer would rank by chance
TOO_SLOW = 1.5  # times the limit: the first image is slower than later ones


@dataclass(frozen=True)
class Round:
    """Candidates by name, and the range of the images on which they are compared."""

    candidates: Sequence[str]
    start: int
    stop: int


OnProgress = Callable[[int, int, str], None]  # predictions so far, those that are planned, the round


def plan_round(number: int, costs: Mapping[str, float], start: int, images: int, seconds: float) -> Round:
    """Plan a round from 1 on: which candidates to keep, and how many images the time allows.

    `costs` are seconds per image by candidate, best first; `seconds` is the time left for all rounds. The
    first round tries as many candidates as it can on a few images. Later ones keep those that can finish.
    """
    share = seconds / (ROUNDS - number + 1)
    kept = _affordable(costs, share / FEWEST if number == 1 else seconds / max(1, images - start))
    count = max(FEWEST, int(share / sum(costs[name] for name in kept)))
    return Round(kept, start, min(images, start + count))


def _affordable(costs: Mapping[str, float], limit: float) -> list[str]:
    """Return the source, the leader, and of the others the cheapest, as many as the limit allows.

    The others share what the leader leaves of the limit, but no less than half of it: after few images, a
    leader that costs much is often there by chance.
    """
    leader = next((name for name in costs if name != SOURCE), SOURCE)
    left = max(limit - costs[leader], limit / 2) - (costs[SOURCE] if leader != SOURCE else 0.0)
    kept = list(dict.fromkeys((SOURCE, leader)))
    for name in sorted(costs, key=costs.__getitem__):
        if name not in kept and costs[name] <= left:
            kept.append(name)
            left -= costs[name]
    return kept


class Race:
    """Rounds of evaluations in a folder; a second run of the same race uses the records that are there.

    The first data set of the job is the clean one, all others are shifted.
    """

    def __init__(
        self,
        job: EvaluationJob,
        clean_name: str,
        candidates: Sequence[Candidate],
        limits: MethodLimits,
        folder: Path,
        classifier: Classifier,
    ):
        assert job.limit is not None
        self.images, self.limits = job.limit, limits
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.dropped: dict[str, str] = {}  # the reason, by candidate
        self.skipped: list[SkippedPoint] = []
        self._job, self._clean_name, self._folder, self._classifier = job, clean_name, folder, classifier
        self._records: dict[str, list[Record]] = {name: [] for name in self.candidates}

    def run(self, engine: Engine[Any, Any], seconds: float, on_progress: OnProgress) -> None:
        """Run all rounds within about these seconds."""
        began, rounds = perf_counter(), self._load()
        for number in range(ROUNDS + 1):
            if number == len(rounds):
                left = (USABLE_TIME * seconds - (perf_counter() - began)) * max(1, engine.pool_size)
                rounds.append(self._plan(number, rounds, left))
                self._save(rounds)
            this = rounds[number]
            for name in set(self._running) - set(this.candidates):
                self.dropped[name] = "takes too long to try" if number == 1 else "fell behind"
            title = f"round {number} of {ROUNDS}"
            self._evaluate_round(this, f"round-{number}", title, engine, on_progress)
            self._drop_losers(number)
            if this.stop >= self.images or self._running == [SOURCE]:
                return

    def run_grid(self, engine: Engine[Any, Any], on_progress: OnProgress) -> None:
        """Evaluate all candidates on all images instead, which shows what the race saves and misses."""
        self._evaluate_round(Round(self._running, 0, self.images), "grid", "grid", engine, on_progress)

    def predictions(self, name: str) -> int:
        """Return the number of predictions of a candidate, on clean and on shifted images."""
        return len(self._records[name])

    def mean_seconds(self, name: str) -> float:
        """Return the mean time of a candidate's predictions."""
        return fmean(record.seconds for record in self._records[name])

    def results(self) -> tuple[ResultBlock | None, ResultBlock]:
        """Return the results on clean and on shifted images, by candidate."""
        records = [record for rows in self._records.values() for record in rows]
        clean, shifted = (
            collect(record for record in records if self._is_clean(record) == is_clean)
            for is_clean in (True, False)
        )
        return clean[0] if clean else None, shifted[0]

    def _report(self, on_progress: OnProgress, note: str, done: int, total: int, _errors: object) -> None:
        before = sum(map(len, self._records.values()))
        on_progress(before + done, before + total, note)

    @property
    def _running(self) -> list[str]:
        return [name for name in self.candidates if name not in self.dropped]

    def _is_clean(self, record: Record) -> bool:
        return record.dataset == self._clean_name and not record.corruption

    def _plan(self, number: int, rounds: Sequence[Round], seconds: float) -> Round:
        if number == 0:
            return Round(self._running, 0, 1)
        costs = {name: self._cost(name) for name in self.candidates}
        spent = sum(record.seconds for rows in self._records.values() for record in rows)
        left = min(seconds, GRID_SHARE * self.images * sum(costs.values()) - spent)
        order = sorted(self._running, key=costs.__getitem__ if number == 1 else self._rank)
        return plan_round(number, {name: costs[name] for name in order}, rounds[-1].stop, self.images, left)

    def _cost(self, name: str) -> float:
        """Return the seconds for one image, clean and with all its shifts."""
        records = self._records[name]
        parts = len({(record.dataset, record.corruption, record.severity) for record in records})
        return parts * self.mean_seconds(name)

    def _rank(self, name: str) -> float:
        return self._assess(name).change(self.limits)

    def _assess(self, name: str) -> Assessment:
        clean, shifted = self.results()
        return assess(name, shifted, clean)

    def _drop_losers(self, number: int) -> None:
        """Drop candidates that are too slow, do harm, or are worse than the leader, beyond chance."""
        allowed = self.limits.seconds
        fastest = min(record.seconds for record in self._records[SOURCE])
        if fastest > allowed:
            raise ConfigError(
                f"budget: the source alone takes {1000 * fastest:.3g} ms an image on this machine, "
                f"expected at most {1000 * allowed:g} ms: raise the budget"
            )
        for name in self._losers():
            if self._assess(name).seconds > allowed * (TOO_SLOW if number == 0 else 1):
                self.dropped[name] = "over the budget"
        if number == 0:
            return
        for name in self._losers():
            if self._assess(name).is_harmful(self.limits):
                self.dropped[name] = "harms clean images"
        _, shifted = self.results()
        leader = min(self._running, key=self._rank)
        for name in self._losers():
            change = None if name == leader else compare(shifted, name, leader)
            if change is not None and change.low > 0 and change.p < SIGNIFICANT:
                self.dropped[name] = f"worse than {leader}"

    def _losers(self) -> list[str]:
        """Return the candidates that may be dropped: all that are running but the source."""
        return [name for name in self._running if name != SOURCE]

    def _evaluate_round(
        self, this: Round, folder: str, title: str, engine: Engine[Any, Any], on_progress: OnProgress
    ) -> None:
        note = f"{title}: {len(this.candidates)} methods on {this.stop} images"
        for index, group in enumerate(_groups([self.candidates[name] for name in this.candidates])):
            on_records = partial(self._report, on_progress, note)
            self._evaluate(this, group, self._folder / f"{folder}-{index}", engine, on_records)

    def _evaluate(
        self,
        this: Round,
        group: Sequence[Candidate],
        out: Path,
        engine: Engine[Any, Any],
        on_records: OnRecords,
    ) -> None:
        """Compute the records of candidates in a round, as far as they are not on disk."""
        names = {candidate.method: candidate.name for candidate in group}
        job = replace(
            self._job,
            methods=list(names),
            options={candidate.method: candidate.evaluated_options for candidate in group},
            skip=this.start,
            limit=this.stop,
        )
        left_out = evaluate(job, out, engine, on_records, classifier=self._classifier)
        for failed in left_out.failed:
            name = names[failed.method]
            if name == SOURCE:
                raise MemoError(f"{self._job.model}: the source fails on {failed.sample}: {failed.reason}")
            self.dropped[name] = f"failed: {failed.reason}"
        self.skipped += left_out.skipped
        with open_for_reading(out) as store:
            for record in store.records():
                name = names[record.method]
                # Positions are counted within a round.
                position = this.start + record.position
                self._records[name].append(replace(record, method=name, position=position))

    def _load(self) -> list[Round]:
        """Return the rounds that were begun; raise if they are of another race."""
        path = self._folder / FILE
        if not path.exists():
            return []
        try:
            known = json.loads(path.read_text("utf-8"))
            rounds = [Round(**each) for each in known["rounds"]]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{path}: is damaged: delete {self._folder} to start over") from None
        if known.get("race") != self._identity() or any(
            name not in self.candidates for each in rounds for name in each.candidates
        ):
            raise ConfigError(
                f"{self._folder}: is a race of other data, another model or other limits: use another output"
            )
        return rounds

    def _save(self, rounds: Sequence[Round]) -> None:
        content = {"race": self._identity(), "rounds": [asdict(each) for each in rounds]}
        with atomic_file(self._folder / FILE) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    def _identity(self) -> dict[str, Any]:
        return {"job": self._job.as_dict(), "harm": self.limits.harm, "seconds": str(self.limits.seconds)}


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return groups in which every method occurs once, as an evaluation needs them."""
    groups: list[list[Candidate]] = []
    for candidate in candidates:
        for group in groups:
            if candidate.method not in {each.method for each in group}:
                group.append(candidate)
                break
        else:
            groups.append([candidate])
    return groups
