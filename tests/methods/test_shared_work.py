"""Methods share work, and each is charged the time that it would take alone."""

import pytest
import torch

import memo_tta as mt
from memo_tta.methods import METHODS
from memo_tta.methods.shared_work import SharedWork, mean_cost
from tests.nets import build_classifier, pictures

pytestmark = pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")


def test_borrowed_work_is_charged_to_all_that_use_it(monkeypatch):
    now = iter([0, 1, 3, 10, 20, 24]).__next__  # start; begin and end of the work; cost; start; cost
    monkeypatch.setattr("memo_tta.methods.shared_work.perf_counter", now)
    work = SharedWork()
    assert work.once("a", lambda: "value", "views") == "value"
    first = work.cost()
    work.start_method()
    assert work.once("a", pytest.fail, "views") == "value"
    second = work.cost()
    assert (first.total, first.views, first.model) == (10, 2, 8)
    assert (second.total, second.views, second.predict, second.model) == (4 + 2, 2, 0, 4)


def test_points_that_are_taken_together_share_the_time(monkeypatch):
    # Two starts; begin and end of the work; two costs; two starts of the next method; two costs.
    now = iter([0, 0, 1, 7, 10, 10, 20, 20, 24, 24]).__next__
    monkeypatch.setattr("memo_tta.methods.shared_work.perf_counter", now)
    works = [SharedWork(), SharedWork()]
    assert SharedWork.once_together(works, "a", lambda: ["one", "two"], "source") == ["one", "two"]
    first = mean_cost(works)
    for work in works:
        work.start_method()
    assert SharedWork.once_together(works, "a", pytest.fail, "source") == ["one", "two"]
    second = mean_cost(works)
    assert (first.total, first.source) == (5, 3)  # each half of 10 and of 6
    assert (second.total, second.source) == (2 + 3, 3)  # half of 4, and what it reuses


def test_work_that_a_method_uses_twice_is_charged_once(monkeypatch):
    now = iter([0, 1, 3, 10, 20, 24]).__next__
    monkeypatch.setattr("memo_tta.methods.shared_work.perf_counter", now)
    work = SharedWork()
    for _ in range(3):
        work.once("a", lambda: "value", "source")
    first = work.cost()
    work.start_method()
    for _ in range(3):
        work.once("a", pytest.fail, "source")
    second = work.cost()
    assert (first.total, first.source) == (10, 2) and (second.total, second.source) == (6, 2)


@pytest.fixture
def classifier(monkeypatch):
    """A classifier whose forward passes advance the clock by one second per image."""
    classifier = build_classifier("batch-norm")
    now = [0.0]

    def tick(_module, inputs):
        now[0] += len(inputs[0])

    classifier.module.register_forward_pre_hook(tick)
    monkeypatch.setattr("memo_tta.methods.shared_work.perf_counter", lambda: now[0])
    return classifier


# Number of images that the model processes: source prediction, views, prediction after adaptation.
FORWARDS = {
    "source": (1, 0, 0),
    "tta": (1, 6, 0),
    "restore": (1, 2 + 6, 0),
    "restore, gated": (1, 2, 0),
    "bn1": (1, 1, 0),
    "tent-bs1": (1, 2, 0),
    "memo": (1, 6, 1),
    "memo, two steps": (1, 12, 1),
    "memo-fast, source is sure": (1, 0, 0),
    "memo-fast, views are sure": (1, 4, 0),
}
OPTIONS = {
    "restore": {"early_confidence": 1.0},
    "restore, gated": {"early_confidence": 1e-9},
    "memo, two steps": {"steps": 2},
    "memo-fast, source is sure": {"skip_confidence": 1e-9},
    "memo-fast, views are sure": {
        "skip_confidence": 1.0,
        "early_views": 4,
        "early_confidence": 1e-9,
        "augment": "same",
    },
}


def same(image, n, rng):
    return torch.from_numpy(image.transpose(2, 0, 1).copy()).float().div(255).expand(n, -1, -1, -1)


def charged(classifier, case: str, work: SharedWork, monkeypatch):
    name = case.partition(",")[0]
    options = dict(OPTIONS.get(case, {}))
    if "n_views" in METHODS[name].declarations:
        options["n_views"] = 6
    if options.get("augment") == "same":
        options["augment"] = same
    if case == "restore, gated":
        monkeypatch.setattr(
            "memo_tta.views.restored_views.Restore.preview", lambda _self, *given: same(*given)
        )
    robust = mt.method(name, classifier, **options)
    work.start_method()
    robust.predict_points([classifier.point(pictures(1)[0])], [0], [work])
    return work.cost()


@pytest.mark.parametrize("case", FORWARDS)
@pytest.mark.parametrize("before", [(), ("source",), ("memo", "tta", "source")])
def test_a_method_is_charged_what_it_does_alone(case, before, classifier, monkeypatch):
    work = SharedWork()
    for other in before:
        charged(classifier, other, work, monkeypatch)
    cost = charged(classifier, case, work, monkeypatch)
    source, model, predict = FORWARDS[case]
    assert (cost.source, cost.model, cost.predict) == (source, model, predict)
    assert cost.total == source + model + predict


def test_views_drawn_after_shared_ones_do_not_depend_on_who_drew_first():
    classifier, image = build_classifier("group-norm"), pictures(1)[0]
    robust = mt.Memo(classifier, n_views=4, lr=0.05, steps=3)
    alone = robust.predict(image, sample_id=0).logits
    work, point = SharedWork(), classifier.point(image)
    mt.method("tta", classifier, n_views=4).predict_points([point], [0], [work])
    (shared,) = robust.predict_points([point], [0], [work])
    assert torch.equal(shared.logits, alone)
