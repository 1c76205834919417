"""A recommendation in words."""

from collections.abc import Iterator

from memo_tta.evaluation.recommendation import MethodLimits, Recommendation
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report import formatting

FEWEST_PREDICTIONS = 20  # of a rival, for its change to be worth a sentence


def sentence(recommendation: Recommendation) -> str:
    """Return the recommendation as one sentence: the method, its gain, its harm and its cost."""
    chosen, source = recommendation.chosen, recommendation.source
    if recommendation.is_source:
        reason = (
            "whether anything helps without harm cannot be told from so few images"
            if recommendation.rivals
            else "nothing that was tried helps on shifted images without harm on clean ones"
        )
        return f"Use source, the model as it is: {reason}."
    assert chosen.gain is not None
    words = f"Use {chosen.method}: on shifted images {change_in_words(chosen.gain, 'points', 'errors')}"
    if chosen.harm is not None:
        words += f", on clean ones {change_in_words(chosen.harm)}"
    return f"{words}, {milliseconds(chosen.seconds)} ms instead of {milliseconds(source.seconds)}."


def doubts(recommendation: Recommendation, limits: MethodLimits) -> Iterator[str]:
    """Yield what the images do not tell, with how many would."""
    chosen = recommendation.chosen
    rivals = [each for each in recommendation.rivals if each.change.points >= FEWEST_PREDICTIONS]
    for rival in sorted(rivals, key=lambda each: each.change.difference)[:1]:
        yield (
            f"{rival.method} may be better than {chosen.method} on shifted images "
            f"({change_with_interval(rival.change)}){_images_would_tell(rival.images)}."
        )
    if not recommendation.is_harm_excluded and chosen.harm is not None:
        yield (
            f"More harm on clean images than {100 * limits.harm:g} points is not excluded "
            f"({change_with_interval(chosen.harm)}){_images_would_tell(recommendation.harm_images)}."
        )


def change_in_words(change: PairedComparison, unit: str = "", noun: str = "") -> str:
    """Format a change of the error in points: "8.2 points fewer errors (5.9 to 10.4)"."""
    shown = float(formatting.percentage_points(change.difference))
    sign, comparative = (-1, "fewer") if shown < 0 else (1, "more")
    low, high = (
        formatting.minus_sign(_points(end)) for end in sorted((sign * change.low, sign * change.high))
    )
    words = [f"{abs(shown):.1f}", unit, comparative, noun] if shown else ["as many", noun]
    return f"{' '.join(filter(None, words))} ({low} to {high})"


def change_with_interval(change: PairedComparison) -> str:
    """Format a change of the error in points, with its sign: "−8.2, −10.4 to −5.9"."""
    difference = formatting.percentage_points(change.difference)
    return formatting.minus_sign(f"{difference}, {formatting.change_interval(change)}")


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds with two digits that count."""
    return f"{1000 * seconds:.1f}" if seconds < 0.01 else f"{1000 * seconds:,.0f}"


def _points(fraction: float) -> str:
    text = f"{100 * fraction:.1f}"
    return formatting.minus_sign("0.0" if text == "-0.0" else text)


def _images_would_tell(images: int | None) -> str:
    return "" if images is None else f": about {images:,} images would tell"
