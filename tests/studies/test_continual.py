"""The study of continual adaptation."""

import numpy as np

from studies import continual


def test_shares_of_the_commonest_label_are_those_counted_window_by_window():
    predictions = np.random.default_rng(0).choice([2, 5, 7], size=40, p=[0.6, 0.3, 0.1])
    counted = [max(np.bincount(predictions[end - 10 : end])) / 10 for end in range(10, 41)]
    assert continual.shares(predictions, 10).tolist() == counted
