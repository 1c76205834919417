"""Whether to adapt: gates keep the source prediction where adaptation is unlikely to change it.

A gate is a pure function of logits. It returns the reason to keep the source prediction, or None to go on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from memo_tta.methods.options import Number, Options, option, when_given
from memo_tta.objectives import at_least_float32


@dataclass(frozen=True, kw_only=True)
class GateOptions(Options):
    """When to keep the source prediction without further work."""

    skip_confidence: float | None = option(
        None, Number("(0, 1]"), "keep the source prediction if its confidence is at least this"
    )
    early_views: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        "check this many views first, and keep the source prediction if all of them agree with it",
    )
    early_confidence: float = option(
        0.9,
        Number("(0, 1]"),
        "minimum average confidence of the first views",
        needs=[when_given("early_views")],
    )

    @property
    def needs_source(self) -> bool:
        """Whether a gate compares with the source prediction."""
        return self.skip_confidence is not None or self.early_views is not None


def source_gate(options: GateOptions, source: Tensor | None) -> str | None:
    """Apply `skip_confidence` to the source's logits, (classes,); they may be None if no gate needs them."""
    if source is None or options.skip_confidence is None:
        return None
    return source_is_confident(source, options.skip_confidence)


def first_views_gate(
    options: GateOptions, source: Tensor | None, first_logits: Callable[[int], Tensor]
) -> str | None:
    """Apply `early_views`; first_logits(n) returns the logits of the first n views, (n, classes)."""
    if source is None or options.early_views is None:
        return None
    return views_agree(first_logits(options.early_views), int(source.argmax()), options.early_confidence)


def entropy_gate(threshold: float | None, marginal_entropy: float, classes: int) -> str | None:
    """Apply `threshold`, a share of the maximum marginal entropy log K (appendix A)."""
    if threshold is None or not marginal_entropy <= (limit := threshold * math.log(classes)):
        return None
    return f"marginal entropy {marginal_entropy:.3f} <= {limit:.3f}"


def source_is_confident(logits: Tensor, minimum: float) -> str | None:
    """Return a reason if the source's logits, (classes,), give some class at least this probability."""
    confidence = float(at_least_float32(logits).softmax(dim=0).max())
    return f"source confidence {confidence:.3f} >= {minimum}" if confidence >= minimum else None


def views_agree(logits: Tensor, index: int, minimum: float) -> str | None:
    """Return a reason if all views, (views, classes), predict the class with this probability on average."""
    scores = at_least_float32(logits).softmax(dim=1)
    confidence = float(scores[:, index].mean())
    if confidence < minimum or bool((scores.argmax(dim=1) != index).any()):
        return None
    return f"the first {len(scores)} views agree with the source, confidence {confidence:.3f}"
