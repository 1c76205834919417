"""Predictions with our views are those with the views that Pillow makes."""

import os

import memo_tta as mt
from memo_tta.bench.published_loop import make_views
from memo_tta.data.sample_images import load_sample
from memo_tta.evaluation.statistics import mcnemar_p
from memo_tta.views import AugMix

POINTS = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 20


def test_errors_are_those_of_pillows_views():
    classifier, augment = mt.load("resnet26"), AugMix(32)
    robust = mt.Memo(classifier, n_views=16)
    seen = []

    def draw(image, n, rng):
        seen.append(augment.plan(image, n, rng))
        return make_views(image, seen[-1], 32, "padded")

    published = mt.Memo(classifier, n_views=16, augment=draw)
    data = load_sample()
    step = len(data) // POINTS
    wrong = []
    for position in range(0, len(data), step):
        sample = data[position]
        answers = (method.predict(sample.image, sample_id=sample.id) for method in (robust, published))
        wrong.append([answer.index != sample.target for answer in answers])
    only_ours = sum(ours and not theirs for ours, theirs in wrong)
    only_theirs = sum(theirs and not ours for ours, theirs in wrong)
    assert len(seen) == POINTS
    assert mcnemar_p(only_theirs, only_ours) > 0.05 and only_ours + only_theirs <= POINTS // 100
