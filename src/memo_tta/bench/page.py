"""The measurements as an HTML page, with plots of the time by number of views and of where it goes."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from statistics import median
from time import perf_counter

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.ticker import LogLocator

from memo_tta.bench.measurement import Measurement
from memo_tta.bench.own_model import MethodCost
from memo_tta.bench.prediction import N_VIEWS, our_memo, published_loop, sample_image
from memo_tta.methods.shared_work import SharedWork
from memo_tta.report.plots import BLUE, GREY, LINES, drawing

ROUNDS = 5
SHARE_VIEWS = 32  # number of views in the plot of where the time goes
TEMPLATES = Environment(loader=PackageLoader("memo_tta.bench"), autoescape=True)


@dataclass(frozen=True)
class PredictionTime:
    """Seconds of one prediction: for its views, and in total."""

    views: float
    total: float


def render_page(measurements: Sequence[Measurement]) -> str:
    """Measure what the plots show, and return the page."""
    curves: dict[str, dict[int, PredictionTime]] = {"the published loop": {}, "memo-tta": {}}
    for views in N_VIEWS:
        sides = _published_timer(views), _our_timer(views)
        rounds = [[measure() for measure in sides] for _ in range(ROUNDS + 1)]
        warm = rounds[1:]
        for curve, times in zip(curves.values(), zip(*warm, strict=True), strict=True):
            curve[views] = _median(times)
    return TEMPLATES.get_template("bench.html").render(
        measurements=measurements,
        time_plot=_data_url(plot_times(curves)),
        share_plot=_data_url(plot_shares({name: curve[SHARE_VIEWS] for name, curve in curves.items()})),
        n_views=SHARE_VIEWS,
    )


def render_own_model(model: str, costs: Sequence[MethodCost]) -> str:
    """Return the page of a model of the user's."""
    plots: list[tuple[int, str, str]] = []
    for threads in dict.fromkeys(cost.threads for cost in costs):
        own = [cost for cost in costs if cost.threads == threads]
        milliseconds = {(cost.method, cost.views): 1000 * cost.seconds for cost in own}
        mib = {(cost.method, cost.views): cost.mib for cost in own}
        time_plot, memory_plot = plot_costs(milliseconds, "ms per image"), plot_costs(mib, "MiB")
        plots.append((threads, _data_url(time_plot), _data_url(memory_plot)))
    measurements = [cost.measurement for cost in costs]
    template = TEMPLATES.get_template("own_model.html")
    return template.render(model=model, plots=plots, measurements=measurements)


def _published_timer(views: int) -> Callable[[], PredictionTime]:
    loop, image, rng = published_loop(views), sample_image(), np.random.default_rng(0)

    def measure() -> PredictionTime:
        began = perf_counter()
        loop.predict(image, rng)
        return PredictionTime(loop.view_seconds, perf_counter() - began)

    return measure


def _our_timer(views: int) -> Callable[[], PredictionTime]:
    robust, image, ids = our_memo(views), sample_image(), count()

    def measure() -> PredictionTime:
        work = SharedWork()
        work.start_method()
        robust.predict_points([robust.classifier.point(image)], [next(ids)], [work])
        cost = work.cost()
        return PredictionTime(cost.views, cost.total)

    return measure


def _median(times: Sequence[PredictionTime]) -> PredictionTime:
    return PredictionTime(median(time.views for time in times), median(time.total for time in times))


def plot_times(curves: dict[str, dict[int, PredictionTime]]) -> bytes:
    """Plot milliseconds by number of views; return an SVG file."""
    with drawing(6.4, 3.2) as result:
        axes = result.figure.subplots()
        for (name, curve), colour in zip(curves.items(), (GREY, BLUE), strict=True):
            milliseconds = [1000 * time.total for time in curve.values()]
            axes.plot(list(curve), milliseconds, "o-", color=colour, label=name)
        axes.set(xlabel="views, B", ylabel="ms per image", xlim=(0, None), ylim=(0, None))
        axes.legend()
    return result.svg


def plot_costs(costs: Mapping[tuple[str, int | None], float], unit: str) -> bytes:
    """Plot a cost by number of views, on logarithmic axes; a method without views is a dashed line."""
    with drawing(6.4, 3.2) as result:
        axes = result.figure.subplots()
        methods = list(dict.fromkeys(method for method, _ in costs))
        for method, colour in zip(methods, cycle(LINES), strict=False):
            points = [(views, cost) for (name, views), cost in costs.items() if name == method]
            if points[0][0] is None:
                axes.axhline(points[0][1], linestyle="--", color=colour, label=method)
            else:
                axes.loglog(*zip(*points, strict=True), "o-", color=colour, label=method)
        ticks = sorted({views for _, views in costs if views is not None})
        axes.set(xlabel="views, B", ylabel=unit)
        axes.set_xticks(ticks, labels=map(str, ticks))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return result.svg


def plot_shares(times: dict[str, PredictionTime]) -> bytes:
    """Plot milliseconds for the views and for the rest; return an SVG file."""
    with drawing(6.4, 1.8) as result:
        axes = result.figure.subplots()
        names = list(times)
        views = [1000 * time.views for time in times.values()]
        rest = [1000 * (time.total - time.views) for time in times.values()]
        axes.barh(names, rest, color=BLUE, label="network, update, prediction")
        axes.barh(names, views, left=rest, color=LINES[1], label="views")
        axes.set(xlabel="ms per image")
        axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return result.svg


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
