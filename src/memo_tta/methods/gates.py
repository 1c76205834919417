"""Whether to adapt: gates keep the source prediction where more work is unlikely to change it.

A gate is a pure function of logits that says why it closes, or None.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from memo_tta.methods.options import Number, Options, option, when_given
from memo_tta.objectives import in_full_precision


@dataclass(frozen=True, kw_only=True)
class GateOptions(Options):
    skip_confidence: float | None = option(
        None, Number("(0, 1]"), "keep the source prediction where it is at least this confident"
    )
    early_views: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        "keep the source prediction where this many views, looked at first, all agree with it",
    )
    early_confidence: float = option(
        0.9,
        Number("(0, 1]"),
        "how confident those first views must be on average",
        needs=[when_given("early_views")],
    )

    @property
    def look_at_source(self) -> bool:
        return self.skip_confidence is not None or self.early_views is not None


def source_gate(options: GateOptions, source: Tensor | None) -> str | None:
    """Apply `skip_confidence` to the source's logits; None are needed where no gate looks at them."""
    if source is None or options.skip_confidence is None:
        return None
    return source_is_confident(source, options.skip_confidence)


def first_views_gate(
    options: GateOptions, source: Tensor | None, look: Callable[[int], Tensor]
) -> str | None:
    """Apply `early_views`; look(n) gives the logits of the first n views."""
    if source is None or options.early_views is None:
        return None
    return views_agree(look(options.early_views), int(source.argmax()), options.early_confidence)


def entropy_gate(threshold: float | None, marginal_entropy: float, classes: int) -> str | None:
    """Apply `threshold`, a share of the largest possible marginal entropy (appendix A)."""
    if threshold is None or not marginal_entropy <= (limit := threshold * math.log(classes)):
        return None
    return f"marginal entropy {marginal_entropy:.3f} <= {limit:.3f}"


def source_is_confident(logits: Tensor, least: float) -> str | None:
    """Close where the source's logits, (classes,), give one class at least this probability."""
    confidence = float(in_full_precision(logits).softmax(dim=0).max())
    return f"source confidence {confidence:.3f} >= {least}" if confidence >= least else None


def views_agree(logits: Tensor, label: int, least: float) -> str | None:
    """Close where all views, (views, classes), predict the label, on average at least this confidently."""
    scores = in_full_precision(logits).softmax(dim=1)
    confidence = float(scores[:, label].mean())
    if confidence < least or bool((scores.argmax(dim=1) != label).any()):
        return None
    return f"the first {len(scores)} views agree with the source, confidence {confidence:.3f}"
