"""Times of actual values: gaps, time zones and clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    HOUR,
    START,
    Open,
    counted,
    forecast,
    scores,
    series_of,
    settle,
)
from tests.service.ledger.sending import (
    hours_from_start,
    models_of_steps,
    post,
    refused,
    values_of,
    written,
)

__all__ = ["models_of_steps"]

BERLIN = ZoneInfo("Europe/Berlin")


def test_steps_may_be_missing(sqlite: str, opened: Open) -> None:
    hours = [0, 1, 5, 9, 11]
    stamps = [f"{START + hour * HOUR}" for hour in hours]
    sent = {"name": "a", "series": [float(hour) for hour in hours], "timestamps": stamps}
    with opened(sqlite) as client:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        assert written(post(client, sent)) == [(5, 0, 0)]
        assert values_of(client, "a") == {
            "timestamps": ["2024-01-01T09:00:00", "2024-01-01T11:00:00"],
            "values": {"load": [9.0, 11.0]},
        }
        table = pa.table(
            {
                "unique_id": ["a"] * 5,
                "ds": hours_from_start(*hours),
                "y": [float(hour) for hour in hours],
            }
        )
        assert written(client.send_table(table, "/actuals?model=calibrated")) == [(0, 0, 5)]


@pytest.mark.parametrize(
    ("model", "stamps", "message", "row"),
    [
        ("calibrated", ["T00:00", "T03:00", "T04:30"], "T04:00:00 or 2024-01-01T05:00:00", 2),
        ("calibrated", ["T00:00", "T03:00", "T03:00"], "it repeats the one before it", 2),
        ("calibrated", ["T00:00", "T03:00", "T02:00"], "it goes back in time", 2),
        ("daily", ["T00:00", "T06:00"], "it lies between two steps", 1),
        ("monthly", ["T00:00", "", "-"], "expected an ISO 8601", 2),
    ],
)
def test_irregular_time_has_an_error_with_its_place(
    sqlite: str, opened: Open, model: str, stamps: list[str], message: str, row: int
) -> None:
    listed = [f"2024-01-01{stamp}" for stamp in stamps]
    sent = {"name": "a", "series": [0.0] * len(listed), "timestamps": listed}
    with opened(sqlite) as client:
        text, place = refused(post(client, sent, model=model))
        assert message in text
        assert place == f"inputs[0].timestamps[{row}]"
        if "-" in stamps:
            return
        times = pa.array([datetime.fromisoformat(each) for each in listed], pa.timestamp("us"))
        columns = {"unique_id": ["a"] * len(listed), "load": sent["series"]}
        table = pa.table({**columns, "ds": times})
        text, place = refused(client.send_table(table, f"/actuals?model={model}"))
        assert message in text
        assert place == f"ds[{row}]"
        assert counted(client, "actuals", "new") == 0


def test_months_may_be_missing_and_have_one_day(sqlite: str, opened: Open) -> None:
    months = [f"2024-{month:02}-01" for month in (1, 2, 6, 12)]
    sent = {"name": "a", "series": [1.0] * 4, "timestamps": months}
    with opened(sqlite) as client:
        assert written(post(client, sent, model="monthly")) == [(4, 0, 0)]
        sent["timestamps"][2] = "2024-06-02"
        text, place = refused(post(client, sent, model="monthly"))
        assert "2024-06-01T00:00:00 or 2024-07-01T00:00:00" in text
        assert place == "inputs[0].timestamps[2]"


@pytest.mark.parametrize("model", ["calibrated", "daily"])
@pytest.mark.parametrize("month", [3, 10], ids=["March", "October"])
@pytest.mark.parametrize("how", ["offsets", "UTC", "zone", "table in UTC", "table with a zone"])
def test_values_match_forecasts_across_a_clock_change(
    sqlite: str, opened: Open, model: str, month: int, how: str
) -> None:
    """The last Sunday's clock change lies within the forecast steps."""
    count = CONTEXT + HORIZON
    if model == "daily":
        first = datetime(2024, month, 22, tzinfo=BERLIN)
        moments = [first + timedelta(days=day) for day in range(count)]
    else:
        start = datetime(2024, month, 31 if month == 3 else 27, tzinfo=BERLIN).astimezone(UTC)
        hours = [start + timedelta(hours=hour - CONTEXT) for hour in range(count)]
        moments = [hour.astimezone(BERLIN) for hour in hours]
    assert moments[CONTEXT].utcoffset() != moments[-1].utcoffset() or model == "daily"
    walls = [moment.replace(tzinfo=None).isoformat() for moment in moments]
    sent = {"name": "a", "series": [0.0] * count}
    values = [float(number) for number in range(count)]
    table = pa.table({"unique_id": ["a"] * count, "load": values})
    with opened(sqlite) as client:
        history = {**sent, "series": [0.0] * CONTEXT, "timestamps": walls[:CONTEXT]}
        body = {"model": model, "inputs": [{**history, "time_zone": "Europe/Berlin"}]}
        assert client.forecast(body).is_success
        settle(client)
        if how.startswith("table"):
            kind = pa.timestamp("us", "UTC" if how == "table in UTC" else "Europe/Berlin")
            if model == "daily" and how == "table in UTC":
                # Days begin at midnight of the zone.
                kind = pa.timestamp("us", "Europe/Berlin")
            table = table.append_column("ds", pa.array(moments, kind))
            answer = client.send_table(table, f"/actuals?model={model}")
        else:
            stamps = {
                "offsets": [moment.isoformat() for moment in moments],
                "UTC": [moment.astimezone(UTC).isoformat() for moment in moments],
                "zone": walls,
            }[how]
            if model == "daily" and how == "UTC":
                stamps = [moment.isoformat() for moment in moments]
            entry = {**sent, "series": values, "timestamps": stamps}
            if how == "zone":
                entry["time_zone"] = "Europe/Berlin"
            answer = post(client, entry, model=model)
        assert written(answer) == [(count, 0, 0)]
        [row] = scores(client, model=model)
        assert row["count"] == HORIZON
        assert row["bias"] == pytest.approx(-np.mean(values[CONTEXT:]))


def test_hour_that_a_clock_shows_twice_needs_a_neighbour(sqlite: str, opened: Open) -> None:
    night = [f"2024-10-27T{hour:02}:00" for hour in (0, 1, 2, 2, 3)]
    known = [[0, 1, 2], [2, 3, 4], [0, 1, 2, 3, 4]]
    unknown = [[0, 2], [0, 3], [1, 2, 4], [2]]
    with opened(sqlite) as client:

        def send(rows: list[int], name: str) -> httpx.Response:
            stamps = [night[row] for row in rows]
            sent = {"name": name, "series": [float(row) for row in rows], "timestamps": stamps}
            return post(client, {**sent, "time_zone": "Europe/Berlin"})

        for rows in unknown:
            text, place = refused(send(rows, "a"))
            assert "shows 2024-10-27T02:00:00 twice: write its UTC offset" in text
            row = next(row for row, hour in enumerate(rows) if night[hour] == night[2])
            assert place == f"inputs[0].timestamps[{row}]"
        # All of them agree on the moment of each value.
        assert [written(send(rows, "a")) for rows in known] == [
            [(3, 0, 0)],
            [(2, 0, 1)],
            [(0, 0, 5)],
        ]
