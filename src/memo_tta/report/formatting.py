"""How figures are written, on the terminal and on the page."""

from memo_tta.evaluation.analysis import ResultBlock
from memo_tta.evaluation.statistics import Paired


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def points(fraction: float) -> str:
    """A difference in percentage points, with its sign; a zero has none."""
    text = f"{100 * fraction:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def minus(figures: str) -> str:
    """With the sign that typesetters use."""
    return figures.replace("-", "−")


def span(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"


def change_span(change: Paired) -> str:
    return f"{points(change.low)} to {points(change.high)}"


def p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def seconds(value: float) -> str:
    return f"{value:.4f}"


def kind(difference: float) -> str:
    """Whether an error, as it is written, went down, up, or neither."""
    shown = float(points(difference))
    return "better" if shown < 0 else "worse" if shown > 0 else "same"


def extent(block: ResultBlock) -> str:
    """How many points and parts an average is over."""
    sizes = {max(map(len, part.values())) for part in block.parts.values()}
    each = f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    if len(block.parts) == 1:
        ((corruption, severity),) = block.parts
        return f"{each} points" + (f", {corruption} at level {severity}" if corruption else "")
    corruptions = {shift.corruption for shift in block.parts}
    levels = sorted({shift.severity for shift in block.parts})
    return (
        f"average over {len(block.parts)} parts of {each} points: {len(corruptions)} corruptions, "
        f"levels {', '.join(map(str, levels))}"
    )
