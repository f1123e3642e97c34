from __future__ import annotations

import numpy as np
import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.times.zones import find_zone, moments_of, offsets_at


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "EST5EDT"]
)
def test_finds_a_zone(name: str) -> None:
    assert find_zone(name, "z").key == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "Mars", "Europe", "Europe/", "/Europe/Berlin", "../etc/passwd", "/etc/passwd"),
        *("Europe/../UTC", "Europe/Berlin\x00", "\ud800", "x" * 100_000, "zone.tab", "leapseconds"),
    ],
)
def test_a_name_of_no_zone(name: str) -> None:
    with pytest.raises(InvalidInputError, match="expected a time zone of the IANA") as error:
        find_zone(name, "z")
    assert error.value.param == "z"
    assert len(error.value.message) < 200


@pytest.mark.parametrize("minutes", [15, 30, 60, 120, 180, 360])
@pytest.mark.parametrize("month", ["2024-10-26", "2024-03-30"])
@pytest.mark.parametrize("phase", range(0, 360, 15))
def test_a_regular_series_across_a_change_of_the_clock(
    minutes: int, month: str, phase: int
) -> None:
    zone, step = find_zone("Europe/Berlin", "z"), np.timedelta64(minutes, "m").astype("m8[us]")
    first = np.datetime64(month, "us") + np.timedelta64(phase, "m")
    moments = first + np.arange(36 * 60 // minutes) * step
    walls = moments + offsets_at(moments, zone)
    np.testing.assert_array_equal(moments_of(walls, zone, step, str), moments)
