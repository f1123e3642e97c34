from __future__ import annotations

import pytest

from foretell.service.settings import VersionChoice
from foretell.service.versions.policy import Policy

PRESENT = ["9", "10", "2"]


@pytest.mark.parametrize(
    ("versions", "pins", "chosen"),
    [
        ("all", {}, ["10", "9", "2"]),
        ("all", {"one": "2"}, ["10", "9", "2"]),
        ("latest", {}, ["10"]),
        ("latest", {"one": "9"}, ["9"]),
        ("latest", {"one": "3"}, []),
        ("latest", {"two": "9"}, ["10"]),
    ],
)
def test_what_is_loaded(versions: VersionChoice, pins: dict[str, str], chosen: list[str]) -> None:
    assert Policy(versions, pins).choose("one", PRESENT) == chosen


def test_a_name_means_the_newest_or_the_pinned_version() -> None:
    policy = Policy("all", {"pinned": "9"})
    assert policy.default("one", PRESENT) == "10"
    assert policy.default("one", []) is None
    assert policy.default("pinned", PRESENT) == "9"
    assert policy.default("pinned", ["10"]) is None


def test_what_is_pinned_or_all_there_is_has_nothing_to_fall_back_on() -> None:
    assert Policy("latest").may_fall_back("one")
    assert not Policy("latest", {"one": "9"}).may_fall_back("one")
    assert not Policy("all").may_fall_back("one")
