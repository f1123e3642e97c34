"""`foretell serve`, as a command: what it imports, refuses and needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from foretell.bundle import layout
from tests.support.bundles import Spec, write_bundle
from tests.support.command import refused
from tests.support.process import ROOT, Server, free_port
from tests.support.waiting import until

# Runs the command, and prints at its end the imported modules of training.
_WATCHED = """
import atexit, sys
training = {"torch", "onnx", "pandas", "foretell.models", "foretell.export"}
atexit.register(lambda: print("imported:", sorted(training & set(sys.modules))))
from foretell.__main__ import main
main()
"""


def test_serving_imports_no_torch(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    with Server(tmp_path / "models", tmp_path / "log", code=_WATCHED) as server:
        body = {"inputs": [{"series": [1.0] * 8}]}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == 200
        assert server.stop() == 0
        assert server.log.rstrip().endswith("imported: []")


@pytest.mark.parametrize("workers", [1, 2])
def test_damaged_repository_ends_all_processes(tmp_path: Path, workers: int) -> None:
    (write_bundle(tmp_path, Spec()) / layout.WEIGHTS).write_bytes(b"changed")
    arguments = ["--models", tmp_path, "--port=0", "--device=cpu", f"--workers={workers}"]
    ended = subprocess.run(
        [sys.executable, "-m", "foretell", "serve", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "foretell serve: model repository" in ended.stderr
    assert "weights.bin: sha256 differs from the manifest" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_empty_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command configures the logs of the whole process; a test should not.
    monkeypatch.setattr("foretell.service.logs.configure", lambda *_: None)
    monkeypatch.setenv("FORETELL_MODELS", str(tmp_path / "nowhere"))
    message = refused("serve", "--models", tmp_path, "--port", "0")
    assert message.startswith(f"foretell serve: model repository {tmp_path}")
    assert "no bundle in it" in message


@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_server_without_standard_streams_answers_and_ends(closed: str, tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec())
    port = free_port()
    command = [sys.executable, "-m", "foretell", "serve", "--models", tmp_path, "--port", str(port)]
    server = subprocess.Popen(
        ["bash", "-c", f'exec "$@" {closed}', "-", *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def is_ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        except httpx.ConnectError:
            assert server.poll() is None
            return False

    try:
        until(is_ready)
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()
