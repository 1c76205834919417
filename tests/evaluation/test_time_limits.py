"""Times as people write them."""

import pytest

from memo_tta.errors import ConfigError
from memo_tta.evaluation.time_limits import parse_seconds


@pytest.mark.parametrize(
    "text, seconds", [("100ms", 0.1), ("0.5s", 0.5), ("2 s", 2), (" 10min ", 600), ("1.5h", 5400), ("7s", 7)]
)
def test_a_number_with_a_unit_is_a_time(text, seconds):
    assert parse_seconds("--budget", text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "ms", "-5ms", "1e3ms", "5 parsecs", "0ms", "0.0s", "1,5s", "5msms", "nan"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="--budget: expected a time like 100ms"):
        parse_seconds("--budget", text)


def test_a_missing_unit_is_asked_for():
    with pytest.raises(ConfigError, match="--budget: 100 has no unit: write 100ms or 100s"):
        parse_seconds("--budget", "100")
