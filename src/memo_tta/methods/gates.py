"""Whether to adapt: gates keep the source prediction where adaptation is unlikely to change it.

A gate is a pure function of logits and of the measured shift. It returns the reason to keep the source
prediction, or None to go on.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from memo_tta.methods.options import Number, Options, option, when_given
from memo_tta.models.shift import SHIFTED, cleanness
from memo_tta.objectives import at_least_float32


@dataclass(frozen=True, kw_only=True)
class GateOptions(Options):
    """When to keep the source prediction without further work."""

    skip_confidence: float | None = option(
        None, Number("(0, 1]"), "keep the source prediction if its confidence is at least this"
    )
    skip_margin: float | None = option(
        None,
        Number("(0, 1]"),
        "keep the source prediction if its two largest probabilities differ by at least this; below a shift "
        f"of {SHIFTED}, the required difference shrinks in proportion to the shift",
    )
    skip_shift: float | None = option(
        None,
        Number("(0, inf)"),
        "keep the source prediction if the image's shift is at most this; no effect on models without batch "
        "norm",
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
        limits = (self.skip_confidence, self.skip_margin, self.skip_shift, self.early_views)
        return any(limit is not None for limit in limits)


def source_gate(options: GateOptions, source: Tensor | None, shift: float | None) -> str | None:
    """Apply the `skip_` options to the source's logits, (classes,), and the shift.

    Logits are None if no gate needs them; a shift of None was not measured, so it is not known to be small.
    """
    if source is None:
        return None
    reason = None
    if options.skip_confidence is not None:
        reason = source_is_confident(source, options.skip_confidence)
    if reason is None and options.skip_margin is not None:
        reason = margin_is_large(source, options.skip_margin, shift)
    if reason is None and options.skip_shift is not None:
        reason = shift_is_small(shift, options.skip_shift)
    return reason


def first_views_gate(options: GateOptions, source: Tensor | None, first_logits: Tensor) -> str | None:
    """Apply `early_views` to the logits of the first views, (n, classes)."""
    if source is None:
        return None
    return views_agree(first_logits, int(source.argmax()), options.early_confidence)


def entropy_gate(threshold: float | None, marginal_entropy: float, classes: int) -> str | None:
    """Apply `threshold`, a share of the maximum marginal entropy log K (appendix A)."""
    if threshold is None or not marginal_entropy <= (limit := threshold * math.log(classes)):
        return None
    return f"marginal entropy {marginal_entropy:.3f} <= {limit:.3f}"


def source_is_confident(logits: Tensor, minimum: float) -> str | None:
    """Return a reason if the source's logits, (classes,), give some class at least this probability."""
    confidence = float(at_least_float32(logits).softmax(dim=0).max())
    return f"source confidence {confidence:.3f} >= {minimum}" if confidence >= minimum else None


def margin_is_large(logits: Tensor, minimum: float, shift: float | None) -> str | None:
    """Return a reason if the two largest probabilities differ enough; less is enough for a clean image."""
    largest = at_least_float32(logits).softmax(dim=0).topk(2).values
    margin, needed = float(largest[0] - largest[1]), minimum * (1 - cleanness(shift))
    if not margin >= needed:
        return None
    measured = "" if shift is None else f" at shift {shift:.3f}"
    return f"source margin {margin:.3f} >= {needed:.3f}{measured}"


def shift_is_small(shift: float | None, maximum: float) -> str | None:
    """Return a reason if the shift was measured and is at most this."""
    return None if shift is None or not shift <= maximum else f"shift {shift:.3f} <= {maximum}"


def views_agree(logits: Tensor, index: int, minimum: float) -> str | None:
    """Return a reason if all views, (views, classes), predict the class with this probability on average."""
    scores = at_least_float32(logits).softmax(dim=1)
    confidence = float(scores[:, index].mean())
    if confidence < minimum or bool((scores.argmax(dim=1) != index).any()):
        return None
    return f"the first {len(scores)} views agree with the source, confidence {confidence:.3f}"
