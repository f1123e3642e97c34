"""The steps of a request in docs/design.md are those of the code."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

_TITLE = "## One request, file by file"
_MOST_LINES = 20
# A server that writes at its end when which of our functions was called in which file.
_RECORDED = """
import atexit, json, os, sys, threading, time
ours = tuple(f"{os.getcwd()}/{name}/" for name in ("bundle", "foretell", "service"))
main_thread, calls = threading.get_ident(), []
def record(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(ours):
        on_main = threading.get_ident() == main_thread
        calls.append((time.monotonic_ns(), on_main, frame.f_code.co_filename))
def write():
    sys.setprofile(None)
    with open(os.environ["CALLS"], "w") as file:
        json.dump(calls, file)
atexit.register(write)
from foretell.__main__ import main
threading.setprofile(record)
sys.setprofile(record)
main()
"""
_WARM, _ROUNDS = 20, 11
_IDLE_SECONDS = 1.5
_PROTOCOL = "service/http/protocol.py"


def files_of_a_request(
    models: Path, body: dict[str, object], folder: Path, expected: Sequence[str]
) -> list[str]:
    """The files that a request enters, in this order, in most of some rounds.

    Files that an idle server enters, too, count only at their expected places.
    """
    written, rounds = folder / "calls", []
    environment = {**os.environ, "CALLS": str(written)}
    settings = {"code": _RECORDED, "environment": environment, "api_keys": "key"}
    with Server(models, folder / "log", **settings) as server:
        for count in range(_WARM + _ROUNDS):
            if count == _WARM:
                idle = time.monotonic_ns()
                time.sleep(_IDLE_SECONDS)
            lines = server.log.count("\n")
            with httpx.Client(base_url=server.url, headers={"X-API-Key": "key"}) as client:
                began = time.monotonic_ns()
                client.post("/forecast", json=body).raise_for_status()
                until(lambda lines=lines: server.log.count("\n") > lines)
                rounds.append((began, time.monotonic_ns()))
        assert server.stop() == 0
    names: dict[str, str] = {}
    calls = []
    for at, on_main, path in json.loads(written.read_text()):
        name = names.get(path) or str(Path(path).resolve().relative_to(ROOT))
        calls.append((at, on_main, names.setdefault(path, name)))
    rounds = rounds[_WARM:]
    # The request before it has ended after a quarter of a second.
    ticking = {name for at, _, name in calls if idle + 10**9 // 4 <= at < rounds[0][0]}
    ticking -= {*expected}
    found = []
    for began, logged in rounds:
        own = [call for call in calls if began <= call[0] <= logged]
        # Then the event loop waits for another request.
        last = max(at for at, _, name in own if name == _PROTOCOL)
        entered = dict.fromkeys(name for at, on_main, name in own if at <= last or not on_main)
        found.append(tuple(name for name in entered if name not in ticking))
    [(most, _)] = Counter(found).most_common(1)
    return [*most]


def test_one_request_file_by_file(tmp_path: Path) -> None:
    pytest.importorskip("simdjson", reason="simdjson has no wheel for this Python")
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
    found = files_of_a_request(tmp_path / "models", {"inputs": [series]}, tmp_path, named)
    assert named == found
