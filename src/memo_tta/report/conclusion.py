"""What the results of a data set say, in sentences: the finding, the suggestion and what is open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memo_tta.evaluation.recommendation import SIGNIFICANT, SOURCE, Assessment, Recommendation
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report import formatting
from memo_tta.report.next_steps import add_source, compare_clean_and_shifted, use_method
from memo_tta.report.pairing import LIMITS, Setting
from memo_tta.report.suggestion import change_in_words, doubts, milliseconds, sentence

NO_BREAK = "\u00a0"  # a space at which no line ends


@dataclass(frozen=True)
class Conclusion:
    """The finding about the best method, and what it suggests."""

    best: str  # the method that the finding is about
    finding: str
    suggestion: str  # one sentence
    doubts: Sequence[str] = ()
    next_steps: Sequence[str] = field(default_factory=list[str])  # commands


def conclude(setting: Setting) -> Conclusion:
    """Return what can be concluded, depending on which results there are."""
    if setting.recommendation is not None:
        return _conclude_from_shifted(setting, setting.recommendation)
    if SOURCE not in setting.methods:
        return _conclude_without_source(setting)
    if not setting.is_compared:
        return _conclude_from_source_alone(setting)
    return _conclude_from_clean(setting)


def _conclude_from_shifted(setting: Setting, recommendation: Recommendation) -> Conclusion:
    chosen = recommendation.chosen
    if recommendation.is_source:
        best = _fewest_errors(setting, lambda each: each.gain)
        finding = _nothing_chosen(setting, best)
    else:
        best = chosen
        finding = f"{_lowered(setting, chosen, chosen.gain)} {_harm(setting, chosen)} {_cost(recommendation)}"
    next_steps = use_method(setting.run, chosen.method)
    if setting.clean is None:
        next_steps = compare_clean_and_shifted(setting.run, setting.data) + next_steps
    open_questions = [*doubts(recommendation, LIMITS), *_unknown_harm(setting, recommendation)]
    return Conclusion(best.method, finding, sentence(recommendation), open_questions, next_steps)


def _conclude_from_clean(setting: Setting) -> Conclusion:
    """Conclude from images without a corruption: a change there may be harm, or gain on a natural shift."""
    best = _fewest_errors(setting, lambda each: each.harm)
    change = best.harm
    if change is not None and _is_lower(change):
        finding = _lowered(setting, best, change)
    else:
        finding = f"{_nothing_lowers(setting)} {_error_of_source(setting)} beyond chance."
        finding += "" if change is None else f" {_closest(setting, best, change)}"
    worse = [each.method for each in setting.assessments if each.harm and each.harm.low > 0]
    finding += f" {_listed(worse)} proven to make it worse." if worse else ""
    suggestion = (
        "Nothing is suggested: that takes clean and shifted images of one data set, and the run has only "
        f"{setting.data} as it is."
    )
    return Conclusion(
        best.method, finding, suggestion, [], compare_clean_and_shifted(setting.run, setting.data)
    )


def _conclude_without_source(setting: Setting) -> Conclusion:
    row = min(setting.table[1], key=lambda row: row.error)
    finding = (
        f"{row.method} has the lowest error of {setting.run.model} on {_images(setting)}: "
        f"{_percent(row.error)} ({formatting.interval(row.low, row.high)}). Without source in the run, "
        "whether it helps is unknown."
    )
    suggestion = "Nothing is suggested: the run has no results of source to compare with."
    return Conclusion(row.method, finding, suggestion, [], add_source(setting.run))


def _conclude_from_source_alone(setting: Setting) -> Conclusion:
    row = setting.row(SOURCE)
    finding = (
        f"The error of {setting.run.model} on {_images(setting)} is {_percent(row.error)} "
        f"({formatting.interval(row.low, row.high)}). No method was compared with source."
    )
    return Conclusion(
        SOURCE,
        finding,
        "Nothing is suggested: the run has no results of a method beside source.",
        [],
        compare_clean_and_shifted(setting.run, setting.data),
    )


def _nothing_chosen(setting: Setting, best: Assessment) -> str:
    """Return the finding where the source is chosen: no gain is proven, or each proven one does harm."""
    if best.gain is None or best.gain.difference >= 0:
        return f"{_nothing_lowers(setting)} {_error_of_source(setting)}."
    if best.is_proven:
        return f"{_lowered(setting, best, best.gain)} {_harm(setting, best)} That is more harm than allowed."
    return (
        f"{_nothing_lowers(setting)} {_error_of_source(setting)} beyond chance and without harm. "
        f"{_closest(setting, best, best.gain)} {_harm(setting, best)}"
    )


def _fewest_errors(setting: Setting, change: Callable[[Assessment], PairedComparison | None]) -> Assessment:
    """Return the method, other than the source, with the lowest error relative to it."""

    def difference(each: Assessment) -> float:
        found = change(each)
        return 1.0 if found is None else found.difference

    return min((each for each in setting.assessments if each.method != SOURCE), key=difference)


def _lowered(setting: Setting, best: Assessment, change: PairedComparison | None) -> str:
    source, row = setting.row(SOURCE), setting.row(best.method)
    assert change is not None
    return (
        f"{best.method} lowers the error of {setting.run.model} on {_images(setting)} from "
        f"{_percent(source.error)} to {_percent(row.error)}: {change_in_words(change, 'points', 'errors')}."
    )


def _harm(setting: Setting, method: Assessment) -> str:
    if method.harm is not None:
        return f"On clean images it makes {change_in_words(method.harm, 'points', 'errors')}."
    return f"Its harm on clean images of {setting.data} is unknown: there are no results."


def _cost(recommendation: Recommendation) -> str:
    chosen, source = (milliseconds(each.seconds) for each in (recommendation.chosen, recommendation.source))
    return f"An image takes {chosen}{NO_BREAK}ms instead of {source}."


def _unknown_harm(setting: Setting, recommendation: Recommendation) -> list[str]:
    chosen = recommendation.chosen
    if recommendation.is_source or chosen.harm is not None:
        return []
    return [
        f"Harm of {chosen.method} on clean images is unknown: clean images of {setting.data}, evaluated "
        "with source and with the same options, would tell."
    ]


def _error_of_source(setting: Setting) -> str:
    return f"the error of {setting.run.model} on {_images(setting)} ({_percent(setting.row(SOURCE).error)})"


def _images(setting: Setting) -> str:
    """Name the images that the finding is about."""
    is_corrupted_here = setting.shifted is not None and not setting.data.endswith("-c")
    return f"corrupted images of {setting.data}" if is_corrupted_here else f"images of {setting.data}"


def _nothing_lowers(setting: Setting) -> str:
    others = [method for method in setting.methods if method != SOURCE]
    return f"{others[0]} does not lower" if len(others) == 1 else "No method lowers"


def _closest(setting: Setting, best: Assessment, change: PairedComparison) -> str:
    is_only_one = len(setting.methods) == 2
    start = "It makes" if is_only_one else f"{best.method} comes closest, with"
    return f"{start} {change_in_words(change, 'points', 'errors')}."


def _is_lower(change: PairedComparison) -> bool:
    return change.high < 0 and change.p < SIGNIFICANT


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    return f"{', '.join(names[:-1])} and {names[-1]} are"


def _percent(fraction: float) -> str:
    return f"{formatting.percent(fraction)}{NO_BREAK}%"


def suggestion_lines(found: Sequence[Setting], runs: int) -> list[str]:
    """Return what the settings suggest, a line each; what is open comes before the suggestion."""
    lines: list[str] = []
    for setting in found:
        conclusion = conclude(setting)
        name = f"{setting.heading(runs)}: " if len(found) > 1 else ""
        lines += [f"{name}{text}" for text in (*conclusion.doubts, conclusion.suggestion)]
    return lines
