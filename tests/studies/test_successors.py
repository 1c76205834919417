"""The study of MEMO's successors runs the methods that its page explains, and skips what is not there."""

import re

from memo_tta.methods import METHODS
from studies.streams import error
from studies.successors import SINGLE, STREAM, steps, table
from tests.conftest import ROOT

PAGE = (ROOT / "docs/successors.md").read_text("utf-8")


def test_the_study_has_every_method_of_the_page():
    explained = set(re.findall(r"^\| `([\w-]+)` \|", PAGE.partition("## Study")[0], re.MULTILINE))
    assert len(explained) >= 9 and explained <= {*SINGLE, *STREAM} <= set(METHODS)


def test_methods_whose_predictions_depend_on_the_order_are_run_in_every_order():
    orders = [step.words[-1] for step in steps() if "--order" in step.words]
    assert orders == ["iid", "sorted", "mixed", "gradual"]
    assert all(set(STREAM) <= set(step.words[9].split(",")) for step in steps() if "--order" in step.words)


def test_without_runs_the_page_stays_as_it_is():
    assert table(error, {}) is None
