"""What serving loads, in a fresh interpreter: never torch, nor anything else of training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.bundles import Spec, write_bundle

ROOT = Path(__file__).resolve().parent.parent

# Runs a command line of foretell, then prints what was imported.
COMMAND = """
import json, sys
from foretell.__main__ import main
sys.argv = ["foretell", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print(json.dumps(sorted(sys.modules)))
"""
APP = """
import json, sys
from service.app import create_app
from service.metrics import Metrics
from service.server import load
from service.settings import Settings
settings = Settings(models=sys.argv[1], device="cpu")
metrics = Metrics()
repository = load(settings, metrics)
create_app(settings, repository, metrics)
print(json.dumps(sorted(sys.modules)))
repository.close(5)
"""


def imported(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("models"), Spec())


def test_serve_imports_nothing_heavy_before_it_serves() -> None:
    modules = imported(COMMAND, "serve", "--help")
    assert "foretell.commands.serve" in modules
    assert not modules & {"torch", "onnx", "models", "export", "pandas", "onnxruntime", "fastapi"}


def test_the_server_needs_no_torch(bundle: Path) -> None:
    modules = imported(APP, str(bundle.parent.parent))
    assert "onnxruntime" in modules
    assert not modules & {"torch", "onnx", "models", "export", "pandas", "safetensors"}


def test_verify_needs_no_torch(bundle: Path) -> None:
    modules = imported(COMMAND, "verify", str(bundle))
    assert "onnxruntime" in modules
    assert not modules & {"torch", "models"}
