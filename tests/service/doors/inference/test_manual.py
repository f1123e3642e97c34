"""The examples of the manual, as they stand there, against a real server."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import pytest

from tests.service.bundles import Spec, softmax_stage, write_bundle
from tests.service.process import ROOT, Server

MANUAL = ROOT / "docs" / "clients" / "tritonclient.md"


@pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")
def test_the_examples_work(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    spec = Spec(name="patchtst", channels=tuple("abcdefg"), context=24, stages=(softmax_stage(24),))
    write_bundle(tmp_path / "models", spec)
    names: dict[str, Any] = {}
    with Server(tmp_path / "models", tmp_path / "log", admin_keys="secret") as server:
        address = server.url.removeprefix("http://")
        for example in examples:
            exec(example.replace("localhost:8000", address), names)
        names["client"].close()
    assert names["forecast"].shape == (2, spec.horizon, 7)
    assert names["attention"].shape == (2, 2, 11, 11)
    assert names["per_request"]["compute_infer"] > 0
    gc.collect()
