"""A server whose standard streams were closed before it started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, free_port
from tests.support.waiting import until


@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-", "<&- >&- 2>&-"])
def test_a_server_without_streams_answers_and_ends(closed: str, tmp_path: Path) -> None:
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
