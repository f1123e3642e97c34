from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service.decode import Job, Series, decode, parse
from service.errors import ServiceError
from tests.service.client import Client
from tests.service.conftest import CALENDAR

EIGHT = [float(n) for n in range(8)]
PAIRS = [[float(n), -float(n)] for n in range(8)]


def job(client: Client, *inputs: dict[str, Any], model: str = "repeat", **rest: Any) -> Job:
    body = {"model": model, "inputs": list(inputs), **rest}
    envelope = parse(json.dumps(body).encode())
    return decode(envelope, client.repository.find(envelope.model), client.settings)


def only(decoded: Job) -> Series:
    (entry,) = decoded.entries
    assert isinstance(entry, Series)
    return entry


def test_a_minimal_request(client: Client) -> None:
    decoded = job(client, {"series": EIGHT})
    assert only(decoded) == Series("series-0", 0, True, None, None, None)
    assert decoded.horizon == 4
    assert decoded.attention is None
    np.testing.assert_array_equal(decoded.feeds["history"], np.array(EIGHT)[None, :, None])
    assert decoded.feeds["history"].dtype == np.float32


def test_of_a_longer_history_the_tail_is_used(client: Client) -> None:
    series = {"series": [9.0, *EIGHT], "start_timestamp": "2024-02-28T23:00:00"}
    decoded = job(client, series)
    np.testing.assert_array_equal(decoded.feeds["history"][0, :, 0], EIGHT)
    assert only(decoded).timestamps == [f"2024-02-29T{hour:02}:00:00" for hour in range(8, 12)]


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
    np.testing.assert_array_equal(decoded.feeds["history_calendar"][0], encoded[:8])
    np.testing.assert_array_equal(decoded.feeds["future_calendar"][0], encoded[8:])


def test_a_short_horizon_keeps_the_whole_calendar(client: Client) -> None:
    decoded = job(
        client,
        {"series": EIGHT, "start_timestamp": "2024-01-01"},
        model="calendar",
        options={"horizon": 1},
    )
    assert decoded.feeds["future_calendar"].shape == (1, 4, 4)
    assert only(decoded).timestamps == ["2024-01-01T08:00:00"]


def test_channels_in_any_order(client: Client) -> None:
    decoded = job(client, {"series": PAIRS, "channels": ["wind", "load"]}, model="multi")
    np.testing.assert_array_equal(decoded.feeds["history"][0], np.array(PAIRS)[:, ::-1])
    assert only(decoded).columns == [1, 0]
    same = job(client, {"series": PAIRS, "channels": ["load", "wind"]}, model="multi")
    assert only(same).columns is None


def test_bad_inputs_leave_no_row(client: Client) -> None:
    decoded = job(client, {"series": [1]}, {"series": EIGHT}, {"series": "x"}, {"series": EIGHT})
    assert [isinstance(entry, Series) for entry in decoded.entries] == [False, True, False, True]
    assert len(decoded.feeds["history"]) == 2
    assert [entry.row for entry in decoded.entries if isinstance(entry, Series)] == [0, 1]


def test_metadata_is_kept_as_it_is(client: Client) -> None:
    metadata = {"id": 2**70, "nested": {"list": [1, None, "é"]}}
    decoded = job(client, {"series": EIGHT}, metadata=metadata)
    assert decoded.metadata is not None
    assert json.loads(decoded.metadata) == metadata


@pytest.mark.parametrize(
    ("frequency", "model"),
    [("H", "repeat"), ("60min", "repeat"), ("M", "monthly"), ("15min", "quarter-hourly")],
)
def test_other_names_of_the_frequency(client: Client, frequency: str, model: str) -> None:
    entry = {"series": EIGHT, "frequency": frequency, "start_timestamp": "2024-01-01"}
    assert only(job(client, entry, model=model)).timeline is not None


def test_no_input_is_good(client: Client) -> None:
    with pytest.raises(ServiceError) as error:
        job(client, {"series": EIGHT[1:]}, {"series": "x"})
    assert error.value.param == "inputs[0].series"
