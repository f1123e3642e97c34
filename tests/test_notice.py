"""NOTICE names what is here that others have written."""

from __future__ import annotations

import json

from tests.support.process import ROOT

VENDOR = ROOT / "service" / "page" / "vendor"
PACKAGES = json.loads((VENDOR / "assets.json").read_text())


def test_it_names_every_library_of_the_page_with_version_and_licence() -> None:
    listed = (ROOT / "NOTICE").read_text().split("\n\n")[2].splitlines()
    named = [line for line in listed if not line.startswith(" ")]
    assert named == [f"{one['name']} {one['version']}, {one['licence']}" for one in PACKAGES]


def test_every_file_of_others_belongs_to_a_library() -> None:
    known = {asset["file"] for one in PACKAGES for asset in one["files"]}
    there = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()}
    assert there == known | {"assets.json"}


def test_it_repeats_the_notices_of_others() -> None:
    lines = {line.strip() for line in (ROOT / "NOTICE").read_text().splitlines()}
    notices = sorted(VENDOR.glob("licences/*notice.txt"))
    assert notices
    for notice in notices:
        assert set(notice.read_text().split("\n")) - {""} <= lines
