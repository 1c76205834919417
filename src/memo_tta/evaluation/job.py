"""The description of an evaluation: data, model, methods and everything else that decides its records."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from memo_tta.data.catalog import locate
from memo_tta.evaluation.json_types import fits

LOADED_WITH = ("weights", "num_classes", "size", "mean", "std", "labels")
EARLIER: Mapping[str, Any] = {"order": "data"}  # what was done before jobs had these keys


def _no_options() -> dict[str, Mapping[str, Any]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class EvaluationJob:
    """What `memo evaluate` is asked to do; equal jobs give equal records."""

    data: Sequence[str]
    model: str
    weights: str | None = None
    num_classes: int | None = None
    size: int | Sequence[int] | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    labels: Sequence[str] | None = None
    methods: Sequence[str] = ("source", "memo")
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=_no_options)  # by method
    corruptions: Sequence[str] | None = None
    severities: Sequence[int] | None = None
    limit: int | None = None
    skip: int = 0  # leave out this many of the images that `limit` chooses
    order: str = "iid"  # of the images, for methods whose predictions depend on other images
    seed: int = 0
    skip_bad: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EvaluationJob | None":
        """Return the job that was stored like this; None if it is one of another version."""
        values, types = with_earlier(values), get_type_hints(cls)
        known = values.keys() <= types.keys() and all(fits(values[name], types[name]) for name in values)
        return cls(**values) if known and {"data", "model"} <= values.keys() else None

    def as_dict(self) -> dict[str, Any]:
        """Return the job as it comes back from JSON, so that it compares equal to a stored one."""
        return json.loads(json.dumps(asdict(self)))

    def key(self) -> str:
        """Return a string that is the same for equal jobs."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The arguments with which the model is loaded, but its name."""
        return {name: getattr(self, name) for name in LOADED_WITH if getattr(self, name) is not None}

    def with_micro_batches(self, micro_batches: Mapping[str, int]) -> "EvaluationJob":
        """Return the job with these micro-batches of methods."""
        sizes = {name: {"micro_batch": size} for name, size in micro_batches.items()}
        options = {name: {**self.options.get(name, {}), **sizes.get(name, {})} for name in self.methods}
        return replace(self, options=options) if sizes else self

    def with_absolute_paths(self) -> tuple["EvaluationJob", list[Path]]:
        """Return the job independent of the working directory, and the paths of its data on disk."""
        located = [locate(spec) for spec in self.data]
        paths = [path for _, found in located for path in found]
        return replace(self, data=[spec for spec, _ in located]), paths


def with_earlier(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored job with the keys that jobs did not have yet when it was stored."""
    return {**EARLIER, **values}
