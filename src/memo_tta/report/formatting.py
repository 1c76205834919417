"""Number and interval formats shared by the terminal, Markdown and HTML reports."""

from collections.abc import Sequence

from memo_tta.evaluation.comparison import MethodResult
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.models.shift import CLEAN_SHIFT

MCE_TITLES = {"mce": "mCE", "relative_mce": "rel. mCE"}  # column titles, by field of MethodResult


def percent(fraction: float) -> str:
    """Format a fraction in percent, with one decimal."""
    return f"{100 * fraction:.1f}"


def percentage_points(fraction: float) -> str:
    """Format a difference in percentage points, with its sign unless it rounds to zero."""
    text = f"{100 * fraction:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def minus_sign(text: str) -> str:
    """Replace hyphens by the typographic minus sign."""
    return text.replace("-", "−")


def interval(low: float, high: float) -> str:
    """Format an interval of error rates in percent."""
    return f"{percent(low)} to {percent(high)}"


def change_interval(change: PairedComparison) -> str:
    """Format the interval of a difference in percentage points."""
    return f"{percentage_points(change.low)} to {percentage_points(change.high)}"


def p_value(p: float) -> str:
    """Format a p-value with three decimals."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def seconds(value: float) -> str:
    """Format seconds with four decimals."""
    return f"{value:.4f}"


def milliseconds(value: float) -> str:
    """Format seconds as whole milliseconds."""
    return f"{1000 * value:.0f}"


def change_kind(difference: float) -> str:
    """Return "better", "worse" or "same" for a difference of errors, as rounded for display."""
    shown = float(percentage_points(difference))
    return "better" if shown < 0 else "worse" if shown > 0 else "same"


def mce_fields(rows: Sequence[MethodResult]) -> list[str]:
    """Return the names of the mCE fields that any of the rows has."""
    return [name for name in MCE_TITLES if any(getattr(row, name) is not None for row in rows)]


def extent(block: ResultBlock) -> str:
    """Describe how many images and parts an average is over, and how far they are from the training data."""
    if (shift := block.median_shift) is None:
        return _size(block)
    return f"{_size(block)}; median shift {shift:.2f} (clean photographs: {CLEAN_SHIFT})"


def _size(block: ResultBlock) -> str:
    sizes = {max(map(len, part.values())) for part in block.parts.values()}
    each = f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    if len(block.parts) == 1:
        ((corruption, severity),) = block.parts
        return f"{each} images" + (f", {corruption} at level {severity}" if corruption else "")
    corruptions = len({shift.corruption for shift in block.parts})
    levels = sorted({shift.severity for shift in block.parts})
    return (
        f"average over {len(block.parts)} parts of {each} images: "
        f"{corruptions} corruption{'s' if corruptions > 1 else ''}, "
        f"level{'s' if len(levels) > 1 else ''} {', '.join(map(str, levels))}"
    )
