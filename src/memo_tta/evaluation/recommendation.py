"""Which method to switch on: the one that helps most on shifted images, given its harm on clean ones."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memo_tta.evaluation.comparison import compare
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import PairedComparison, wilson_interval

SOURCE = "source"
TIE = 0.005  # a faster method whose error exceeds the best one's by no more is preferred
SIGNIFICANT = 0.05
MOST_IMAGES = 1_000_000  # to ask for; beyond that, a difference is none
ROUNDING = 1e-9


@dataclass(frozen=True)
class MethodLimits:
    """What a method may add to the error on clean images, as a fraction, and how long it may take."""

    harm: float = 0.005
    seconds: float = math.inf  # per image


@dataclass(frozen=True)
class Assessment:
    """What a method changes, compared with the source on the same images, and what it costs."""

    method: str
    gain: PairedComparison | None  # on shifted images; None for the source
    harm: PairedComparison | None  # on clean images; None for the source, or if there are none
    seconds: float  # per image: the median over clean or over shifted images, whichever is longer

    @property
    def is_proven(self) -> bool:
        """Whether the method has fewer errors on shifted images, beyond chance."""
        return self.gain is not None and self.gain.high < 0 and self.gain.p < SIGNIFICANT

    def is_harmful(self, limits: MethodLimits) -> bool:
        """Whether the method adds more errors on clean images than allowed, beyond chance."""
        return self.harm is not None and self.harm.low > limits.harm

    def change(self, limits: MethodLimits) -> float:
        """Return the change of the error on shifted images, plus the harm beyond the limit."""
        harm = 0.0 if self.harm is None else max(0.0, self.harm.difference - limits.harm)
        return harm + (0.0 if self.gain is None else self.gain.difference)

    def is_fast(self, limits: MethodLimits) -> bool:
        return self.seconds <= limits.seconds


@dataclass(frozen=True)
class Rival:
    """A method that may be better than the chosen one, and how many images would tell."""

    method: str
    change: PairedComparison  # to the chosen method, on shifted images
    images: int | None  # None: too many to ask for


@dataclass(frozen=True)
class Recommendation:
    """The method to use, the source's assessment if nothing helps without harm, and what remains open."""

    chosen: Assessment
    source: Assessment
    rivals: Sequence[Rival]
    harm_images: int | None = None  # clean images that would exclude harm beyond the limit
    is_harm_excluded: bool = True

    @property
    def is_source(self) -> bool:
        return self.chosen.method == SOURCE


def recommend(
    shifted: ResultBlock,
    clean: ResultBlock | None,
    limits: MethodLimits,
    choices: Collection[str] | None = None,
) -> Recommendation:
    """Choose a method, by default from all with results; those of the source must be among the results."""
    found = [assess(method, shifted, clean) for method in shifted.methods]
    source = next(each for each in found if each.method == SOURCE)
    allowed = [each for each in found if each.gain and each.is_fast(limits) and not each.is_harmful(limits)]
    proven = [
        each
        for each in allowed
        if each.is_proven and each.change(limits) < 0 and (choices is None or each.method in choices)
    ]
    chosen = _best(shifted, proven, limits) if proven else source
    recommendation = Recommendation(chosen, source, list(_rivals(shifted, chosen, allowed)))
    if chosen.harm is None or chosen.harm.high <= limits.harm + ROUNDING:
        return recommendation
    images = images_needed(chosen.harm.points, chosen.harm, limits.harm)
    return replace(recommendation, is_harm_excluded=False, harm_images=images)


def assess(method: str, shifted: ResultBlock, clean: ResultBlock | None) -> Assessment:
    """Compare a method with the source."""
    blocks = [block for block in (shifted, clean) if block is not None and method in block.methods]
    seconds = max(float(np.median(block.pooled(method).seconds)) for block in blocks)
    if method == SOURCE:
        return Assessment(method, None, None, seconds)
    harm = None if clean is None or method not in clean.methods else compare(clean, method, SOURCE)
    gain = compare(shifted, method, SOURCE)
    if gain is not None and gain.low == gain.high:  # a bootstrap of images that all change alike is a point
        gain = _with_score_interval(gain)
    return Assessment(method, gain, harm and _with_score_interval(harm), seconds)


def _with_score_interval(change: PairedComparison) -> PairedComparison:
    """Replace the interval by Newcombe's (1998), which is no point where no image, or all, changed.

    It adds the distances to the Wilson limits of both shares, helped and hurt, in squares.
    """
    helped, hurt = change.helped / change.points, change.hurt / change.points
    helped_low, helped_high = wilson_interval(change.helped, change.points)
    hurt_low, hurt_high = wilson_interval(change.hurt, change.points)
    low = change.difference - math.hypot(hurt - hurt_low, helped_high - helped)
    high = change.difference + math.hypot(hurt_high - hurt, helped - helped_low)
    return replace(change, low=low, high=high)


def _best(shifted: ResultBlock, methods: Sequence[Assessment], limits: MethodLimits) -> Assessment:
    """Return the method with the best change, or the fastest of those that come close to it."""
    best = min(methods, key=lambda each: each.change(limits))
    close = [each for each in methods if each.change(limits) - best.change(limits) <= TIE + ROUNDING]
    return min(close, key=lambda each: (each.seconds, each.change(limits)))


def _rivals(shifted: ResultBlock, chosen: Assessment, allowed: Sequence[Assessment]) -> Iterator[Rival]:
    """Yield the allowed methods with fewer errors than the chosen one on the images that both have seen."""
    for other in allowed:
        change = None if other is chosen else compare(shifted, other.method, chosen.method)
        if change is not None and change.difference < -TIE:
            images = min(_count_images(shifted, name) for name in (other.method, chosen.method))
            yield Rival(other.method, change, images_needed(images, change, 0.0))


def _count_images(shifted: ResultBlock, method: str) -> int:
    return len(np.unique(np.concatenate([part[method].position for part in shifted.parts.values()])))


def images_needed(images: int, change: PairedComparison, limit: float) -> int | None:
    """Return how many images instead of these many would tell a change from the limit; None: too many.

    The width of an interval falls with the square root of the number of images.
    """
    distance, half_width = abs(change.difference - limit), (change.high - change.low) / 2
    if distance == 0 or images * (half_width / distance) ** 2 > MOST_IMAGES:
        return None
    count = max(images + 1, images * (half_width / distance) ** 2)
    step = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / step) * step
