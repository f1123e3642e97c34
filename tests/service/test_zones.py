from __future__ import annotations

import pytest

from service.errors import InvalidInputError
from service.zones import find_zone


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
