from __future__ import annotations

import numpy as np
import pytest

from foretell.service.errors import ServiceError
from foretell.service.forecast.series import Series
from tests.service.client import Client
from tests.service.conftest import CALENDAR
from tests.service.forecast.test_decode import EIGHT, PAIRS, job, only


def test_of_a_longer_history_the_tail_is_used(client: Client) -> None:
    series = {"series": [9.0, *EIGHT], "start_timestamp": "2024-02-28T23:00:00"}
    decoded = job(client, series)
    np.testing.assert_array_equal(decoded.history[0, :, 0], EIGHT)
    timeline = only(decoded).timeline
    assert timeline is not None
    hours = [f"2024-02-29T{hour:02}:00:00" for hour in range(8, 12)]
    assert timeline.labels(0, 4) == hours


def test_calendar_features_belong_to_the_tail(client: Client) -> None:
    decoded = job(
        client,
        {"series": [9.0, *EIGHT], "start_timestamp": "2024-02-28T23:00:00"},
        model="calendar",
    )
    calendar = CALENDAR.calendar
    assert calendar is not None
    hours = np.datetime64("2024-02-29T00", "h") + np.arange(12)
    encoded = calendar.encode(hours)
    assert decoded.calendar is not None
    np.testing.assert_array_equal(decoded.calendar[0], encoded)


@pytest.mark.parametrize(("horizon", "passes"), [(1, 1), (4, 1), (5, 2), (16, 4)])
def test_the_calendar_reaches_to_the_end_of_the_last_pass(
    client: Client, horizon: int, passes: int
) -> None:
    decoded = job(
        client,
        {"series": EIGHT, "start_timestamp": "2024-01-01"},
        model="calendar",
        options={"horizon": horizon},
    )
    assert decoded.options.passes == passes
    assert decoded.calendar is not None
    assert decoded.calendar.shape == (1, 8 + 4 * passes, 4)


def test_channels_in_any_order(client: Client) -> None:
    decoded = job(client, {"series": PAIRS, "channels": ["wind", "load"]}, model="multi")
    np.testing.assert_array_equal(decoded.history[0], np.array(PAIRS)[:, ::-1])
    assert only(decoded).columns == [1, 0]
    same = job(client, {"series": PAIRS, "channels": ["load", "wind"]}, model="multi")
    assert only(same).columns is None


def test_bad_inputs_leave_no_row(client: Client) -> None:
    decoded = job(client, {"series": [1]}, {"series": EIGHT}, {"series": "x"}, {"series": EIGHT})
    assert [isinstance(entry, Series) for entry in decoded.entries] == [False, True, False, True]
    assert len(decoded.history) == 2
    assert [entry.row for entry in decoded.entries if isinstance(entry, Series)] == [0, 1]


@pytest.mark.parametrize(
    ("frequency", "model"),
    [("H", "repeat"), ("60min", "repeat"), ("M", "monthly"), ("15min", "quarter-hourly")],
)
def test_other_names_of_the_frequency(client: Client, frequency: str, model: str) -> None:
    entry = {"series": EIGHT, "frequency": frequency, "start_timestamp": "2024-01-01"}
    assert only(job(client, entry, model=model)).timeline is not None


def test_what_was_filled_is_told_by_channel(client: Client) -> None:
    rows = [[None, 1.0], *PAIRS[1:7], [7.0, None], [8.0, 8.0]]
    entry = {"series": rows, "channels": ["wind", "load"]}
    decoded = job(client, entry, model="multi", options={"missing": "interpolate"})
    assert only(decoded).filled == {"load": 1}
    assert decoded.history[0, -2].tolist() == [1.0, 7.0]
    with pytest.raises(ServiceError) as error:
        job(client, entry, model="multi")
    assert error.value.param == "inputs[0].series[0][0]"


@pytest.mark.parametrize("field", ["start_timestamp", "timestamps"])
def test_times_that_a_zone_cannot_have(client: Client, field: str) -> None:
    hours = [f"0001-01-01T{hour:02}:00Z" for hour in range(8)]
    times = {field: hours[0] if field == "start_timestamp" else hours}
    with pytest.raises(ServiceError, match="years 1 to 9999") as error:
        job(client, {"series": EIGHT, "time_zone": "America/New_York", **times})
    assert error.value.param == f"inputs[0].{field}"
