"""The table of what each method gains on shifted images and what it harms on clean ones."""

from collections.abc import Callable, Sequence

from memo_tta.evaluation.recommendation import SOURCE, Assessment, MethodLimits
from memo_tta.report.html_tables import Cell, Group, Row, Table, change_cell
from memo_tta.report.pairing import LIMITS, Setting
from memo_tta.report.suggestion import milliseconds

# In this order; the first that holds is the verdict on a method.
VERDICTS: Sequence[tuple[str, Callable[[Assessment, MethodLimits], bool]]] = (
    ("the model as it is", lambda each, _: each.method == SOURCE),
    ("not compared with source", lambda each, _: each.gain is None and each.harm is None),
    ("over the budget", lambda each, limits: not each.is_fast(limits)),
    ("helps, but harms clean images", lambda each, limits: each.is_proven and each.is_harmful(limits)),
    ("helps; harm not measured", lambda each, _: each.is_proven and each.harm is None),
    ("helps; harm not excluded", lambda each, limits: each.is_proven and _may_harm(each, limits)),
    ("helps", lambda each, _: each.is_proven),
    ("makes shifted images worse", lambda each, _: each.gain is not None and each.gain.low > 0),
    ("harms clean images", lambda each, limits: each.gain is not None and each.is_harmful(limits)),
    ("not proven", lambda each, _: each.gain is not None),
    # Without shifted images:
    ("makes them worse", lambda each, _: each.harm is not None and each.harm.low > 0),
    ("makes them better", lambda each, _: each.harm is not None and each.harm.high < 0),
    ("no change proven", lambda *_: True),
)


def gain_and_harm_table(settings: Sequence[Setting], runs: int) -> Table | None:
    """Return the table of all settings with something to compare; None without any."""
    shown = [setting for setting in settings if setting.is_compared]
    if not shown:
        return None
    has_shifted = any(setting.shifted for setting in shown)
    has_clean = any(setting.clean for setting in shown)
    clean = "on clean images" if all(setting.shifted for setting in shown) else "without corruption"
    titles = ["method", *["on shifted images"] * has_shifted, *[clean] * has_clean, "ms/image", "verdict"]
    groups = [
        Group(
            [_row(setting, method, has_shifted, has_clean) for method in setting.assessments],
            setting.heading(runs) if len(settings) > 1 else "",
        )
        for setting in shown
    ]
    return Table(titles, groups, "wide verdicts")


def verdict(method: Assessment, limits: MethodLimits) -> str:
    """Return what the results say about a method, in a few words."""
    return next(words for words, holds in VERDICTS if holds(method, limits))


def _row(setting: Setting, method: Assessment, has_shifted: bool, has_clean: bool) -> Row:
    chosen = setting.recommendation and setting.recommendation.chosen.method
    cells = [*[change_cell(method.gain)] * has_shifted, *[change_cell(method.harm)] * has_clean]
    cells += [Cell(milliseconds(method.seconds)), Cell(verdict(method, LIMITS))]
    return Row(method.method, cells, "method chosen" if chosen == method.method else "method")


def _may_harm(method: Assessment, limits: MethodLimits) -> bool:
    return method.harm is not None and method.harm.high > limits.harm
