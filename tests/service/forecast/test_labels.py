from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.forecast.times import find_zone, timeline_from, write_labels
from foretell.timeaxis.frequency import Frequency

ENDS = ("", "Z", "+05:45", "-09:30", "+00:53:28")


@given(st.datetimes(), st.sampled_from(ENDS), st.sampled_from(["s", "15min", "h", "D"]))
def test_writes_what_labels_are(start: object, end: str, frequency: str) -> None:
    timeline = timeline_from(f"{start}{end}", None, Frequency.parse(frequency), 3, "s")
    try:
        labels = timeline.labels(0, 5)
    except ValueError:
        return
    assert json.loads(write_labels(timeline, 5)) == labels
    assert json.loads(write_labels(timeline, 1)) == labels[:1]


def test_offsets_of_their_own() -> None:
    zone = find_zone("Europe/Berlin", "z")
    timeline = timeline_from("2024-03-30T23:00Z", zone, Frequency.parse("h"), 1, "s")
    expected = ["2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"]
    assert json.loads(write_labels(timeline, 2)) == expected


@pytest.mark.parametrize("end", ENDS)
def test_the_last_day_that_can_be_written(end: str) -> None:
    timeline = timeline_from(f"9999-12-31T20:00{end}", None, Frequency.parse("h"), 1, "s")
    assert json.loads(write_labels(timeline, 3)) == timeline.labels(0, 3)
