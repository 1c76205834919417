"""The methods and settings that `memo advise` compares."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memo_tta.errors import MemoError, MemoWarning
from memo_tta.methods import METHODS
from memo_tta.methods.shared_passes import SharedPassOptions
from memo_tta.models.classifier import Classifier


def _no_options() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Candidate:
    """A method with options other than its defaults."""

    method: str
    options: Mapping[str, Any] = field(default_factory=_no_options)

    @property
    def name(self) -> str:
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def evaluated_options(self) -> dict[str, Any]:
        """The options with which images share no passes: the time of an image that comes alone counts."""
        shares_passes = issubclass(METHODS[self.method].method.options_type, SharedPassOptions)
        alone = {"batch_points": 1} if shares_passes and "batch_size" not in self.options else {}
        return {**alone, **self.options}


SINGLE: Sequence[Candidate] = (
    Candidate("source"),
    Candidate("tta", {"n_views": 16}),
    Candidate("restore"),
    Candidate("bn1"),
    Candidate("memo-fast"),
    Candidate("memo", {"n_views": 16}),
    Candidate("memo"),
)
STREAM: Sequence[Candidate] = (
    Candidate("bn", {"batch_size": 64}),
    Candidate("tent"),
    Candidate("memo", {"n_views": 16, "params": "norm", "reset": "anchor"}),
)


def usable_candidates(classifier: Classifier, is_stream: bool) -> list[Candidate]:
    """Return the candidates that have an effect on this model; those of streams only if asked for."""
    candidates = [*SINGLE, *STREAM] if is_stream else SINGLE
    return [candidate for candidate in candidates if _is_usable(candidate, classifier)]


def _is_usable(candidate: Candidate, classifier: Classifier) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", MemoWarning)  # a method without effect on this model
            METHODS[candidate.method](classifier, **candidate.options)
    except (MemoError, MemoWarning):
        return False
    return True
