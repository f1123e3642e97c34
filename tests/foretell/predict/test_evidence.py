from typing import Any

import numpy as np
import pytest

from foretell.client import Stage
from foretell.plots.evidence import figure_of
from foretell.predict.evidence import Evidence, find_evidence
from tests.foretell.predict.stages import ALL, CHANNELS, CIRCULANT, DENSE, FIRST, NONE, PATCHES


def found_in(stages: list[dict[str, Any]], first: str) -> list[Evidence]:
    return find_evidence([Stage.model_validate(stage) for stage in stages], first)


def test_steps_are_times_by_the_clock():
    (found,) = found_in([DENSE], FIRST)
    assert found.queries == tuple(f"2024-01-01 0{hour}:00" for hour in (4, 5, 6, 7))
    assert found.ahead.tolist() == [False, False, True, True]
    assert found.strongest(found.weights[2], 2) == [
        ("2024-01-01 05:00", 0.4),
        ("2024-01-01 04:00", 0.3),
    ]


def test_days_are_dates():
    days = [f"2024-01-0{day}T00:00:00" for day in range(1, 5)]
    (found,) = found_in([DENSE | {"query": days, "key": days}], days[-1])
    assert found.keys == ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")


def test_patches_are_stretches_and_padding_is_nothing():
    (found,) = found_in([PATCHES], FIRST)
    assert found.keys == ("2024-01-01 02:00 to 03:00", "2024-01-01 04:00 to 05:00")
    # Their mean over the channels.
    assert found.weights.tolist() == [[0.75, 0.25]] * 2
    assert not found.ahead.any()


def test_a_stretch_over_midnight_has_both_days():
    key = [{"start": "2024-01-01T23:00:00", "end": "2024-01-02T00:00:00"}]
    stage = DENSE | {"weights": [[1.0]], "query": key, "key": key}
    (found,) = found_in([stage], "2024-01-01T23:00:00")
    assert found.keys == ("2024-01-01 23:00 to 2024-01-02 00:00",)
    assert found.ahead.tolist() == [True]


def test_channels_and_numbers_are_as_they_are():
    (found,) = found_in([CHANNELS | {"key": [0, 1]}], FIRST)
    assert (found.queries, found.keys) == (("wind", "load"), ("0", "1"))
    assert not found.ahead.any()


def test_lags_have_periods_and_are_sorted():
    (found,) = found_in([CIRCULANT], FIRST)
    assert found.lags is not None
    assert found.lags.positions.tolist() == [3, 0]
    assert found.lags.periods == ("3 days", "")
    assert found.lags.weights.tolist() == [0.75, 0.25]
    np.testing.assert_array_equal(found.lags.correlation, [1.5, 0.5, -1, 2])


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        *(
            ("PT90S", "1 minute 30 seconds"),
            ("PT15M", "15 minutes"),
            ("P7D", "1 week"),
            ("P2W", "2 weeks"),
        ),
        *(("P3M", "3 months"), ("P12M", "1 year"), ("P1Y", "1 year"), (None, "")),
    ],
)
def test_periods_of_lags(duration: str | None, words: str):
    (found,) = found_in([CIRCULANT | {"lag_durations": [duration] * 2}], FIRST)
    assert found.lags is not None
    assert found.lags.periods == (words, words)


def test_stages_without_a_map_have_none():
    assert [one.name for one in found_in([*ALL, NONE], FIRST)] == [
        stage["name"] for stage in ALL[:-1]
    ]


def test_a_line_parts_history_and_forecast_in_a_map_that_has_both():
    figure = figure_of(found_in([DENSE, CHANNELS], FIRST), "")
    lines = [[line.get_ydata()[0] for line in panel.lines] for panel in figure.axes[:2]]
    assert lines == [[1.5], []]
