"""The pages of docs/reference/ are generated from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from foretell.service.settings import Settings
from tests.docs.reference import FOLDER, described_settings
from tests.support.process import ROOT


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.md")}


def test_reference_pages_are_current(tmp_path: Path) -> None:
    # In another process: other tests register parts of their own.
    command = [sys.executable, "-m", "tests.docs.reference", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    made = read(tmp_path)
    assert {name: text for name, text in read(FOLDER).items() if name in made} == made, (
        "run: make reference"
    )


def test_every_setting_is_described() -> None:
    assert described_settings().keys() == Settings.model_fields.keys()
