"""What the suite measured as one page, with time over B and where the time goes."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count
from statistics import median
from string import Template
from time import perf_counter

import numpy as np

from memo_tta.bench.measurement import Measurement
from memo_tta.bench.prediction import BATCHES, image, loop, ours
from memo_tta.methods.shared_work import SharedWork
from memo_tta.report.plots import BLUE, GREY, LINES, drawing

ROUNDS = 5
SHOWN = 32  # views of the bars that say where the time goes
PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>memo bench</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #0f172a }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e2e8f0; vertical-align: top }
td.number { text-align: right; white-space: nowrap } .holds { color: #15803d } .missed { color: #b91c1c }
img { max-width: 100% } p { color: #475569 }
</style>
<h1>memo bench</h1>
<p>Ratios and medians of interleaved runs on this machine; lower is better.</p>
<table><tr><th>what</th><th>measured</th><th>bar</th><th></th><th>how</th></tr>
$rows
</table>
<h2>Time of a prediction over B</h2>
<p>ResNet-26, 32 pixels, the same number of threads.</p>
<img alt="milliseconds over the number of views" src="$over_views">
<h2>Where the time goes</h2>
<p>At B = $shown.</p>
<img alt="milliseconds of views and of the rest" src="$split">
</html>
""")


@dataclass(frozen=True)
class Split:
    """Seconds of one prediction: views, and all of it."""

    views: float
    total: float


def write(rows: Sequence[Measurement]) -> str:
    """The page, after measuring what its plots show."""
    curves: dict[str, dict[int, Split]] = {"the published loop": {}, "memo-tta": {}}
    for views in BATCHES:
        both = _published(views), _ours(views)
        measured = [[measure() for measure in both] for _ in range(ROUNDS + 1)]
        for curve, splits in zip(curves.values(), zip(*measured[1:], strict=True), strict=True):
            curve[views] = _middle(splits)
    return PAGE.substitute(
        rows="\n".join(map(_row, rows)),
        over_views=_inline(over_views(curves)),
        split=_inline(where({name: curve[SHOWN] for name, curve in curves.items()})),
        shown=SHOWN,
    )


def _published(views: int) -> Callable[[], Split]:
    published, picture, rng = loop(views), image(), np.random.default_rng(0)

    def measure() -> Split:
        began = perf_counter()
        published.predict(picture, rng)
        return Split(published.view_seconds, perf_counter() - began)

    return measure


def _ours(views: int) -> Callable[[], Split]:
    robust, picture, ids = ours(views), image(), count()

    def measure() -> Split:
        work = SharedWork()
        work.start_method()
        robust.predict_points([robust.classifier.point(picture)], [next(ids)], work)
        cost = work.cost()
        return Split(cost.views, cost.total)

    return measure


def _middle(splits: Sequence[Split]) -> Split:
    return Split(median(split.views for split in splits), median(split.total for split in splits))


def over_views(curves: dict[str, dict[int, Split]]) -> bytes:
    with drawing(6.4, 3.2) as result:
        axes = result.figure.subplots()
        for (name, curve), colour in zip(curves.items(), (GREY, BLUE), strict=True):
            axes.plot(
                list(curve), [1000 * split.total for split in curve.values()], "o-", color=colour, label=name
            )
        axes.set(xlabel="views, B", ylabel="ms a point", xlim=(0, None), ylim=(0, None))
        axes.legend()
    return result.svg


def where(splits: dict[str, Split]) -> bytes:
    with drawing(6.4, 1.8) as result:
        axes = result.figure.subplots()
        names = list(splits)
        views = [1000 * split.views for split in splits.values()]
        rest = [1000 * (split.total - split.views) for split in splits.values()]
        axes.barh(names, rest, color=BLUE, label="the network, update, prediction")
        axes.barh(names, views, left=rest, color=LINES[1], label="views")
        axes.set(xlabel="ms a point")
        axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return result.svg


def _row(row: Measurement) -> str:
    verdict = "" if row.bar is None else "holds" if row.holds else "missed"
    bar = "" if row.bar is None else f"≤ {row.bar:.3g} {row.unit}"
    return (
        f'<tr><td>{escape(row.name)}</td><td class="number">{row.measured:.3g} {row.unit}</td>'
        f'<td class="number">{bar}</td><td class="{verdict}">{verdict}</td><td>{escape(row.detail)}</td></tr>'
    )


def _inline(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
