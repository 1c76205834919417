"""Advice on which method to use, from labelled images of the user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.candidates import Candidate, usable_candidates
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.evaluation.comparison import mean_error
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.race import OnProgress, Race
from memo_tta.evaluation.recommendation import (
    SOURCE,
    Assessment,
    MethodLimits,
    Recommendation,
    assess,
    recommend,
)
from memo_tta.evaluation.results import ResultBlock
from memo_tta.models.classifier import Classifier
from memo_tta.workers import Engine

FEWEST_IMAGES = 20


@dataclass(frozen=True)
class AdviceRequest:
    """What advice is asked for."""

    job: EvaluationJob  # the clean data, the model, how many images and the seed
    shifted: str | None = None  # the user's own shifted data; None: clean images are corrupted
    severities: Sequence[int] = (4,)
    is_stream: bool = False
    limits: MethodLimits = field(default_factory=MethodLimits)


@dataclass(frozen=True)
class TriedCandidate:
    """A candidate of the race, and what became of it."""

    candidate: Candidate
    assessment: Assessment
    predictions: int
    dropped: str | None  # why it left the race; None: it stayed to the end


@dataclass(frozen=True)
class Advice:
    """The recommended method with its options, and the evidence."""

    recommendation: Recommendation
    tried: Sequence[TriedCandidate]
    limits: MethodLimits
    shifted: ResultBlock
    clean: ResultBlock | None
    skipped: int = 0  # images that could not be read

    @property
    def chosen(self) -> Candidate:
        name = self.recommendation.chosen.method
        return next(each.candidate for each in self.tried if each.candidate.name == name)

    @property
    def method(self) -> str:
        """The name of the recommended method."""
        return self.chosen.method

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the recommended method, other than its defaults."""
        return self.chosen.options

    def source_error(self, block: ResultBlock) -> tuple[float, float, float]:
        """Return the source's error and its 95 % interval."""
        return mean_error(block, SOURCE)


def prepare_race(request: AdviceRequest, folder: Path, classifier: Classifier) -> Race:
    """Check the data, and return the race of the candidates that suit the model."""
    (spec,) = request.job.data
    clean = _load_clean(spec, request.job.seed)
    _, matched = match_classes(classifier, clean)
    _check_enough(spec, matched)
    candidates = usable_candidates(classifier, request.is_stream)
    shifted = _shifted_specs(spec, request)
    _check_shifted(shifted, clean, request.job.seed)
    limit = min(request.job.limit or len(matched), len(matched))
    job = replace(request.job, data=[spec, *shifted], limit=limit)
    return Race(job, clean.name, candidates, request.limits, folder, classifier)


def advise(race: Race, engine: Engine[Any, Any], seconds: float, on_progress: OnProgress) -> Advice:
    """Run the race within about these seconds, and return what it advises."""
    race.run(engine, seconds, on_progress)
    clean, shifted = race.results()
    finalists = [name for name in race.candidates if name not in race.dropped]
    tried = [
        TriedCandidate(
            race.candidates[name],
            assess(name, shifted, clean),
            race.predictions(name),
            race.dropped.get(name),
        )
        for name in race.candidates
        if race.predictions(name)
    ]
    recommendation = recommend(shifted, clean, race.limits, finalists)
    return Advice(recommendation, tried, race.limits, shifted, clean, len(race.skipped))


def _load_clean(spec: str, seed: int) -> Dataset:
    parts = load_parts(spec, seed=seed)
    if len(parts) > 1 or parts[0].corruption:
        raise ConfigError(
            f"{spec}: expected clean images, got corrupted ones: name clean images, and these as --shifted"
        )
    return parts[0]


def _check_enough(spec: str, clean: Dataset) -> None:
    if len(clean) < FEWEST_IMAGES:
        raise DataError(
            f"{spec}: has {len(clean)} images, expected at least {FEWEST_IMAGES}: "
            "fewer cannot tell methods apart"
        )
    if len(found := np.unique(clean.targets)) < 2:
        raise DataError(
            f"{spec}: all images are of one class ({clean.labels[int(found[0])]}), expected at least two: "
            "put the images of each class in a folder of its own"
        )


def _check_shifted(specs: Sequence[str], clean: Dataset, seed: int) -> None:
    for spec in specs:
        for part in load_parts(spec, seed=seed):
            if part.name == clean.name and not part.corruption:
                raise ConfigError(
                    f"{spec}: expected another name than that of the clean images, {clean.name}: rename one"
                )


def _shifted_specs(spec: str, request: AdviceRequest) -> list[str]:
    if request.shifted is not None:
        return [request.shifted]
    return [f"{spec}+{name}:{severity}" for name in VALIDATION for severity in request.severities]
