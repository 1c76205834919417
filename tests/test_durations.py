"""The estimate of how long work takes, used by deadlines, queues, progress bars and training."""

from memo_tta.durations import RecentDurations


def test_the_estimate_is_the_median_of_the_last_repetitions():
    durations = RecentDurations(kept=3)
    assert durations.typical is None
    for seconds, typical in ((4.0, 4.0), (2.0, 3.0), (90.0, 4.0), (1.0, 2.0), (1.0, 1.0)):
        durations.add(seconds)
        assert durations.typical == typical
