"""The paper's figure 3: error against time, where runs differ in the number of views."""

from collections.abc import Sequence

from memo_tta.report.plots import EffortPoint, effort_plot
from memo_tta.report.run import Run


def effort_over_views(runs: Sequence[Run]) -> bytes | None:
    """As SVG; None where no method was run with several numbers of views."""
    lines: dict[str, dict[int, EffortPoint]] = {}
    baselines: dict[str, float] = {}
    for run in runs:
        for block, table in run.tables:
            for row in table:
                views, name = run.n_views(row.method), f"{run.name(block)}: {row.method}"
                if views is not None:
                    lines.setdefault(name, {})[views] = EffortPoint(views, row.seconds, 100 * row.error)
                elif row.method == "source":
                    baselines[name] = 100 * row.error
    varied = {name: [line[views] for views in sorted(line)] for name, line in lines.items() if len(line) > 1}
    return effort_plot(varied, baselines.items()) if varied else None
