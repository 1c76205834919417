"""Explanations list the views and their predictions, for every method that uses views."""

from typing import Any

import pytest
import torch

import memo_tta as mt
from memo_tta.methods import METHODS, Method
from memo_tta.methods.view_method import ViewMethod
from tests.nets import build_classifier, everything, pictures

pytestmark = pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")

NO_GATES = {"restore": {"early_views": None}, "memo-fast": {"skip_confidence": None, "early_views": None}}
WITH_VIEWS = [name for name, entry in METHODS.items() if issubclass(entry.method, ViewMethod)]


def build(name: str, **options: Any) -> Method[Any]:
    net = "rotation" if name == "ttt" else "batch-norm"
    few = {"n_views": 5} if name in WITH_VIEWS else {}
    strong = {"lr": 0.05} if METHODS[name].method.needs_gradients else {}
    return mt.method(name, build_classifier(net), **{**few, **strong, **NO_GATES.get(name, {}), **options})


@pytest.mark.parametrize("name", WITH_VIEWS)
def test_views_come_with_the_answers_before_and_after(name):
    robust, image = build(name), pictures(1)[0]
    before = everything(robust.classifier.module)
    seen = robust.explain(image, sample_id=3)
    assert torch.equal(seen.prediction.logits, robust.predict(image, sample_id=3).logits)
    assert len(seen.views) == len(seen.before) == len(seen.after) == 5
    changed = [not torch.equal(b.logits, a.logits) for b, a in zip(seen.before, seen.after, strict=True)]
    assert changed == [METHODS[name].method.needs_gradients] * 5
    assert everything(robust.classifier.module) == before


def test_answers_to_the_views_are_the_model_s():
    robust, image = build("tta"), pictures(1)[0]
    seen = robust.explain(image)
    with torch.no_grad():
        expected = robust.classifier.module.eval()(seen.views)
    torch.testing.assert_close(torch.stack([p.logits for p in seen.before]), expected)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in WITH_VIEWS])
def test_a_method_that_looks_at_none_lists_none(name):
    seen = build(name).explain(pictures(1)[0])
    assert len(seen.views) == 0 and seen.before == seen.after == []


@pytest.mark.parametrize("name", ["tta", "memo"])
def test_a_gate_that_closes_before_the_views_leaves_none(name):
    seen = build(name, skip_confidence=1e-9).explain(pictures(1)[0])
    assert seen.prediction.status == "gated" and len(seen.views) == 0


def test_nothing_more_is_computed_unless_it_is_asked_for():
    robust = build("memo")
    sizes: list[int] = []
    robust.classifier.module.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    robust.predict(pictures(1)[0])
    assert sizes == [5, 1, 1]
