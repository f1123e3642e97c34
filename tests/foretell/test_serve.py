from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from foretell.bundle import layout
from foretell.commands.serve import command
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server

# Runs the command, and says at its end what of the training side was imported.
_WATCHED = """
import atexit, sys
training = {"torch", "onnx", "pandas", "foretell.models", "foretell.export"}
atexit.register(lambda: print("imported:", sorted(training & set(sys.modules))))
from foretell.__main__ import main
main()
"""


def test_serving_never_imports_torch(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    with Server(tmp_path / "models", tmp_path / "log", code=_WATCHED) as server:
        body = {"inputs": [{"series": [1.0] * 8}]}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == 200
        assert server.stop() == 0
        assert server.log.rstrip().endswith("imported: []")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_repository_ends_all_processes(tmp_path: Path, workers: int) -> None:
    (write_bundle(tmp_path, Spec()) / layout.WEIGHTS).write_bytes(b"changed")
    arguments = ["--models", str(tmp_path), "--port", "0", "--device", "cpu"]
    ended = subprocess.run(
        [sys.executable, "-m", "foretell", "serve", *arguments, "--workers", str(workers)],
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


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command configures the whole process's logs; a test should not."""
    monkeypatch.setattr("foretell.service.logs.configure", lambda *_: None)


def test_an_empty_repository(tmp_path: Path, quiet: None) -> None:
    result = CliRunner().invoke(command, ["--models", str(tmp_path), "--port", "0"])
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell serve: model repository")
    assert "no bundle in it" in result.stderr


def test_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETELL_MODELS", raising=False)
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2
    assert "FORETELL_MODELS or --models: required" in result.stderr


def test_a_flag_wins_over_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    monkeypatch.setenv("FORETELL_MODELS", str(tmp_path / "nowhere"))
    monkeypatch.setenv("FORETELL_PORT", "0")
    result = CliRunner().invoke(command, ["--models", str(tmp_path / "elsewhere")])
    assert "elsewhere: no such folder" in result.stderr
