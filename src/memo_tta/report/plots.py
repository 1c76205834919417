"""Plots of runs as small SVG files."""

import io
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from memo_tta.errors import MissingExtra
from memo_tta.evaluation.metrics import ConfidenceBin
from memo_tta.report.run import Run

INK, GREY, BLUE, GREEN, RED = "#0f172a", "#64748b", "#0369a1", "#15803d", "#b91c1c"
LINES = (BLUE, "#b45309", GREEN, "#7c3aed", RED, GREY)
COLUMNS = 4  # reliability diagrams side by side
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "memo-tta",  # element ids do not vary between runs
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a name is no formula
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}


class Drawing:
    """A matplotlib figure, and its SVG once the `with` block of `drawing` has ended."""

    figure: Any
    svg: bytes


@contextmanager
def drawing(width: float, height: float) -> Generator[Drawing]:
    """Yield an empty figure of this size in inches, without changing matplotlib's global state."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib is not installed: pip install 'memo-tta[report]'") from None
    result, file = Drawing(), io.BytesIO()
    with rc_context(STYLE):
        result.figure = Figure(figsize=(width, height), layout="constrained")
        yield result
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        result.figure.savefig(file, format="svg", metadata=no_metadata, transparent=True)
    result.svg = file.getvalue()


def changes_plot(changes: Mapping[str, tuple[int, int]]) -> bytes:
    """Draw, for each method, the numbers of images it helped (bar to the right) and hurt (to the left)."""
    with drawing(6.4, 0.5 + 0.32 * len(changes)) as result:
        axes = result.figure.subplots()
        names = list(changes)
        helped, hurt = ([changes[name][side] for name in names] for side in (0, 1))
        for title, counts, sign, colour in (("hurt", hurt, -1, RED), ("helped", helped, 1, GREEN)):
            lengths = [sign * count for count in counts]
            bars = axes.barh(names, lengths, height=0.62, color=colour, alpha=0.85, label=title)
            axes.bar_label(bars, [str(count) for count in counts], padding=3, color=colour)
        margin = 0.12 * max([1, *helped, *hurt])  # space for the numbers
        axes.set(xlim=(-max(hurt) - margin, max(helped) + margin), xticks=[])
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.invert_yaxis()
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
    return result.svg


def reliability_plot(methods: Mapping[str, tuple[Sequence[ConfidenceBin], float]]) -> bytes:
    """Draw a reliability diagram for each method, given its bins and expected calibration error."""
    across = min(COLUMNS, len(methods))
    down = -(-len(methods) // across)
    with drawing(0.5 + 2.1 * across, 0.4 + 2.3 * down) as result:
        grid = result.figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(methods) :]:
            axes.set_visible(False)
        for axes, (name, (bins, error)) in zip(grid.flat, methods.items(), strict=False):
            left = [b.low for b in bins]
            width = [b.high - b.low for b in bins]
            bars = {"width": width, "align": "edge", "edgecolor": "white", "linewidth": 0.6}
            axes.bar(left, [b.accuracy for b in bins], color=BLUE, alpha=0.85, **bars)
            gaps = [b.confidence - b.accuracy for b in bins]
            colours = [RED if gap > 0 else "white" for gap in gaps]
            axes.bar(left, gaps, bottom=[b.accuracy for b in bins], color=colours, alpha=0.3, **bars)
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--")
            axes.set(title=f"{name}: ECE {100 * error:.1f} %", xlim=(0, 1), ylim=(0, 1), aspect="equal")
            axes.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        result.figure.supxlabel("confidence", fontsize=9)
        result.figure.supylabel("accuracy", fontsize=9)
    return result.svg


class TimedError(NamedTuple):
    """The error of a method with a number of views, and its cost."""

    views: int
    seconds: float  # per image
    error: float  # percent


def error_over_time_plot(
    methods: Mapping[str, Sequence[TimedError]], baselines: Iterable[tuple[str, float]]
) -> bytes:
    """Draw error against seconds over the number of views, as the paper's figure 3.

    Baselines are horizontal lines at an error in percent.
    """
    with drawing(6.4, 3.4) as result:
        from matplotlib.ticker import LogLocator

        axes = result.figure.subplots()
        for index, (name, measurements) in enumerate(methods.items()):
            colour = LINES[index % len(LINES)]
            axes.plot(
                [measured.seconds for measured in measurements],
                [measured.error for measured in measurements],
                "o-",
                color=colour,
                label=name,
                markersize=4,
            )
            for measured in measurements:
                place = (measured.seconds, measured.error)
                axes.annotate(
                    str(measured.views), place, (0, 5), textcoords="offset points", color=colour, ha="center"
                )
        for name, error in baselines:
            axes.axhline(error, color=GREY, linewidth=0.8, linestyle="--", label=name)
        axes.set(xscale="log", xlabel="seconds per image, median", ylabel="error %")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.grid(axis="y", color="#e2e8f0", linewidth=0.6)
        axes.legend(fontsize=8)
    return result.svg


def number_of_views_plot(runs: Sequence[Run]) -> bytes | None:
    """Draw error against time of methods that were run with several numbers of views; None without any."""
    methods: dict[str, dict[int, TimedError]] = {}
    baselines: dict[str, float] = {}
    for run in runs:
        for block, rows in run.tables:
            for row in rows:
                views, name = run.n_views(row.method), f"{run.name(block)}: {row.method}"
                if views is not None:
                    methods.setdefault(name, {})[views] = TimedError(views, row.seconds, 100 * row.error)
                elif row.method == "source":
                    baselines[name] = 100 * row.error
    varied = {
        name: [by_views[views] for views in sorted(by_views)]
        for name, by_views in methods.items()
        if len(by_views) > 1
    }
    return error_over_time_plot(varied, baselines.items()) if varied else None
