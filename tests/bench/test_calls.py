"""The counter of calls counts all calls of our functions, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.calls import ALL, OTHER_THREADS, Call, Recorders, Trace, count, usual
from tests.support.process import ROOT

_ONE = """
import asyncio
import threading
from foretell import two


def go():
    [each for each in range(3)]
    sum(each for each in range(3))
    sorted([2, 1], key=two.key)
    asyncio.run(two.wait())
    thread = threading.Thread(target=two.aside, name="other")
    thread.start()
    thread.join()
"""
_TWO = """
import asyncio


def key(value):
    return value


async def wait():
    await asyncio.sleep(0)


def aside():
    key(1)
"""
_MAIN = """
import sys
from foretell import one

for _ in sys.stdin:
    one.go()
    print(flush=True)
"""
_OTHER = [
    Call("foretell/two.py", "aside", "MainProcess, ended"),
    Call("foretell/two.py", "key", "MainProcess, ended"),
]
_EXPECTED = [
    Call("foretell/one.py", "go", "MainProcess, MainThread"),
    Call("foretell/two.py", "key", "MainProcess, MainThread"),
    Call("foretell/two.py", "key", "MainProcess, MainThread"),
    # A coroutine begins, and is resumed once.
    Call("foretell/two.py", "wait", "MainProcess, MainThread"),
    Call("foretell/two.py", "wait", "MainProcess, MainThread"),
    *_OTHER,
]


def test_calls_are_counted_while_they_are_recorded(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "foretell").mkdir(parents=True)
    (tree / "foretell" / "__init__.py").touch()
    (tree / "foretell" / "one.py").write_text(_ONE)
    (tree / "foretell" / "two.py").write_text(_TWO)
    recorders = Recorders(tmp_path / "records", tree)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _MAIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **recorders.environment},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def go() -> Trace:
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            return recorders.take()

        assert go().calls == []
        recorders.record(ALL)
        trace = go()
        recorders.record(OTHER_THREADS)
        others = go()
        process.stdin.close()
    assert trace.calls == _EXPECTED
    assert trace.files == ["foretell/one.py", "foretell/two.py"]
    assert trace.changes == 1
    assert others.calls == _OTHER


def test_the_calls_of_most_rounds_count() -> None:
    one, two = Call("one", "a", ""), Call("two", "b", "")
    cut_off, usual_one, changes_more = Trace([one]), Trace([one, one, two]), Trace([one, two, one])
    with_a_tick = Trace([one, one, two, Call("clock", "tick", "")])
    assert usual([cut_off, with_a_tick, changes_more, usual_one]) is usual_one


@pytest.mark.timeout(120)
def test_a_request_is_counted_in_the_processes_it_passes(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    body = json.dumps({"inputs": [{"series": [1.0] * 8}]}).encode()
    python = Path(sys.executable)
    trace = count(ROOT, python, tmp_path / "models", body, tmp_path / "own", workers=2)
    processes = {call.place.split(",")[0] for call in trace.calls}
    assert "engine" in processes
    assert any(name.startswith("worker-") for name in processes)
    assert {"service/http/protocol.py", "service/engine/model.py"} < set(trace.files)
    # The line in the log is the last that is done.
    assert trace.calls[-1].path == "service/logs.py"
    with pytest.raises(RuntimeError, match="it answers 422"):
        count(ROOT, python, tmp_path / "models", b"[]", tmp_path / "refused")
