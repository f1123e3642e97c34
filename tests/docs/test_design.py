"""What docs/design.md says of one request is what happens."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server

_TITLE = "## One request, file by file"
_MOST_LINES = 20
# A server that writes at its end when which of our functions was called in which file.
_RECORDED = """
import atexit, json, os, sys, threading, time
root, calls = os.getcwd() + "/", []
def record(frame, event, _):
    if event == "call" and root in frame.f_code.co_filename:
        on_main = threading.current_thread() is threading.main_thread()
        calls.append((time.monotonic_ns(), on_main, frame.f_code.co_filename))
def write():
    sys.setprofile(None)
    with open(os.environ["CALLS"], "w") as file:
        json.dump([(at, main, os.path.realpath(path)) for at, main, path in calls], file)
atexit.register(write)
threading.setprofile(record)
sys.setprofile(record)
from foretell.__main__ import main
main()
"""
_WARM, _ROUNDS = 20, 11
# The event loop finishes a request soon after its last byte; the log gathers lines for 50 ms.
_LOOP_SECONDS, _LOG_SECONDS = 0.02, 0.08


def files_of_a_request(models: Path, body: dict[str, object], folder: Path) -> Iterable[str]:
    """The files that a request enters, in this order, in most of some rounds."""
    written, rounds = folder / "calls", []
    environment = {**os.environ, "CALLS": str(written)}
    with Server(models, folder / "log", code=_RECORDED, environment=environment) as server:
        for _ in range(_WARM):
            httpx.post(f"{server.url}/forecast", json=body)
        for _ in range(_ROUNDS):
            time.sleep(_LOOP_SECONDS)
            with httpx.Client(base_url=server.url) as client:
                began = time.monotonic_ns()
                client.post("/forecast", json=body).raise_for_status()
                time.sleep(_LOOP_SECONDS)
                answered = time.monotonic_ns()
                time.sleep(_LOG_SECONDS)
                rounds.append((began, answered, time.monotonic_ns()))
        assert server.stop() == 0
    calls = json.loads(written.read_text())
    found = [
        # After the answer the main thread only waits for other requests.
        dict.fromkeys(
            str(Path(path).relative_to(ROOT))
            for at, on_main, path in calls
            if began <= at <= (answered if on_main else logged)
        )
        for began, answered, logged in rounds
    ]
    return Counter(map(tuple, found)).most_common(1)[0][0]


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
    found = files_of_a_request(tmp_path / "models", {"inputs": [series]}, tmp_path)
    assert named == [*found]
