"""The error of methods against the time they take, on shifted and on clean images."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from memo_tta.report.label_placement import Box, place_labels
from memo_tta.report.plots import GREY, INK, LINES, drawing

SOURCE = "source"
WIDTH, HEIGHT = 8.6, 2.7  # of one panel, in inches
FONT = 8.5  # points
WIDER = 1.08  # the width of a label in the font of a reader, relative to matplotlib's
APART = 6.0  # points between the error bars of methods that take the same time
DOT = 4.0  # radius in points
SHORTEST = 1e-3  # milliseconds that the axis shows
NEAR = 9.0  # a label farther away is tied to its dot by a line
LABELS = ("shifted images", "clean images")


class ErrorRate(NamedTuple):
    """An error rate with its 95 % interval, as fractions."""

    error: float
    low: float
    high: float


class PlottedMethod(NamedTuple):
    """What a method costs, and its errors on clean and on shifted images; None where it has no results."""

    method: str
    seconds: float  # per image
    clean: ErrorRate | None
    shifted: ErrorRate | None


def error_and_time_plot(methods: Sequence[PlottedMethod], titles: tuple[str, str] = LABELS) -> bytes:
    """Draw a panel for shifted and one for clean images, each only if there are any; return the SVG.

    The titles are those of the two panels.
    """
    times = {row.method: max(1000 * row.seconds, SHORTEST) for row in methods}
    panels = [
        (title, {name: (time, rate) for (name, time), rate in zip(times.items(), rates, strict=True) if rate})
        for title, rates in zip(
            titles, ([row.shifted for row in methods], [row.clean for row in methods]), strict=True
        )
    ]
    panels = [(title, rows) for title, rows in panels if rows]
    colours = _colours([row.method for row in methods])
    with drawing(WIDTH, 0.4 + HEIGHT * len(panels)) as result:
        figure = result.figure
        figure.set_dpi(72)  # one point is one unit
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, rows) in zip(grid, panels, strict=True):
            _set_axes(axes, title, rows)
        grid[-1].set_xlim(*_time_axis(times.values()))
        grid[-1].set_xlabel("milliseconds per image, median")
        figure.draw_without_rendering()  # fixes where the axes are
        for axes, (_, rows) in zip(grid, panels, strict=True):
            _draw_methods(axes, rows, colours)
    return result.svg


def _colours(methods: Sequence[str]) -> dict[str, str]:
    others = [method for method in methods if method != SOURCE]
    lines = [colour for colour in LINES if colour != GREY]
    return {SOURCE: GREY} | {name: lines[index % len(lines)] for index, name in enumerate(others)}


def _set_axes(axes: Any, title: str, rows: Mapping[str, tuple[float, ErrorRate]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    bounds = [100 * value for _, rate in rows.values() for value in (rate.low, rate.high)]
    height = max(bounds) - min(bounds) or 1.0
    axes.set(
        xscale="log",
        ylim=(max(0.0, min(bounds) - 0.15 * height), max(bounds) + 0.15 * height),
        ylabel="error %",
    )
    axes.set_title(title, loc="left", color=INK)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#e2e8f0", linewidth=0.6)
    axes.set_axisbelow(True)
    if SOURCE in rows:
        axes.axhline(100 * rows[SOURCE][1].error, color=GREY, linewidth=0.8, linestyle="--", zorder=1)


def _time_axis(times: Collection[float]) -> tuple[float, float]:
    """Return the ends of the axis, with space for the labels on the right."""
    lowest, highest = min(times), max(times)
    margin = max(0.12 * math.log(highest / lowest), 0.5)
    return lowest * math.exp(-margin), highest * math.exp(1.5 * margin)


def _draw_methods(axes: Any, rows: Mapping[str, tuple[float, ErrorRate]], colours: Mapping[str, str]) -> None:
    """Draw dots with error bars, and labels where there is space."""
    to_points = axes.transData.transform
    ends = {name: [to_points((time, 100 * value)) for value in rate] for name, (time, rate) in rows.items()}
    across = _spread({name: float(dot[0]) for name, (dot, _, _) in ends.items()})
    dots, obstacles = [], []
    for name, (_, rate) in rows.items():
        x = axes.transData.inverted().transform((across[name], 0))[0]
        below, above = 100 * (rate.error - rate.low), 100 * (rate.high - rate.error)
        axes.errorbar(
            [x], [100 * rate.error], [[max(below, 0.0)], [max(above, 0.0)]], fmt="o", color=colours[name],
            markersize=2 * DOT - 2, elinewidth=1.2, capsize=0,
        )  # fmt: skip
        place, y = across[name], float(ends[name][0][1])
        dots.append((place, y))
        obstacles.append(Box(place - DOT, y - DOT, place + DOT, y + DOT))
        obstacles.append(Box(place - 1, float(ends[name][1][1]), place + 1, float(ends[name][2][1])))
    area = axes.bbox
    if SOURCE in rows:
        line = float(ends[SOURCE][0][1])
        obstacles.append(Box(area.x0, line - 1, area.x1, line + 1))
    sizes = [(WIDER * _width(name), 1.1 * FONT) for name in rows]
    bounds = Box(area.x0, area.y0, area.x1, area.y1)
    for name, dot, place in zip(rows, dots, place_labels(dots, sizes, obstacles, bounds), strict=True):
        _draw_label(axes, name, dot, place, colours[name])


def _draw_label(axes: Any, name: str, dot: tuple[float, float], place: Box, colour: str) -> None:
    """Write the label, with a thin line to its dot if that is not next to it."""
    nearest = (
        min(max(dot[0], place.left), place.right),
        min(max(dot[1], place.bottom), place.top),
    )
    if math.dist(dot, nearest) > NEAR:
        ends = axes.transData.inverted().transform([dot, nearest])
        axes.plot(ends[:, 0], ends[:, 1], color=colour, linewidth=0.5, alpha=0.6, zorder=1)
    # Anchored at the side of the dot, so that a font of another width does not cover it.
    side, x = next(
        (side, x)
        for side, x, holds in (
            ("left", place.left, place.left > dot[0]),
            ("right", place.right, place.right < dot[0]),
            ("center", (place.left + place.right) / 2, True),
        )
        if holds
    )
    offset = x - dot[0], (place.bottom + place.top) / 2 - dot[1]
    position = axes.transData.inverted().transform(dot)
    style = {"color": colour, "fontsize": FONT, "ha": side, "va": "center"}
    axes.annotate(name, position, offset, textcoords="offset points", **style).set_in_layout(False)


def _width(text: str) -> float:
    """Return the width of a label in points."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=FONT, usetex=False).get_extents().width)


def _spread(places: Mapping[str, float]) -> dict[str, float]:
    """Move what is nearer than APART to a neighbour aside, as little as needed, so that each is visible."""
    groups: list[list[str]] = []
    centres: list[float] = []
    for name in sorted(places, key=lambda name: places[name]):
        groups.append([name])
        centres.append(places[name])
        while len(groups) > 1 and centres[-1] - centres[-2] < APART * (len(groups[-1]) + len(groups[-2])) / 2:
            last = groups.pop()
            groups[-1] += last
            centres.pop()
            centres[-1] = sum(places[name] for name in groups[-1]) / len(groups[-1])
    return {
        name: centre + APART * (index - (len(group) - 1) / 2)
        for group, centre in zip(groups, centres, strict=True)
        for index, name in enumerate(group)
    }
