"""What docs/design.md says of one request is what happens."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.calls import count
from tests.support.process import ROOT

_TITLE = "## One request, file by file"
_MOST_LINES = 20


@pytest.mark.timeout(120)
def test_one_request_file_by_file(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    section = page.split(f"{_TITLE}\n\n")[1].split("\n\n## ")[0]
    introduction, steps = section.split("\n\n")
    assert len([*introduction.splitlines(), *steps.splitlines()]) <= _MOST_LINES
    named = [
        f"foretell/{name}" if name.startswith("timeaxis/") else f"service/{name}"
        for name in re.findall(r"`([\w/]+\.py)`", steps)
    ]
    write_bundle(tmp_path / "models", Spec())
    series = {"series": [1.0] * 8, "start_timestamp": "2024-03-01T00:00:00"}
    body = json.dumps({"inputs": [series]}).encode()
    trace = count(ROOT, Path(sys.executable), tmp_path / "models", body, tmp_path / "server")
    assert named == trace.files
