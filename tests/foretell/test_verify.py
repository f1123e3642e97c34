import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from bundle import layout
from bundle.manifest import read
from foretell.commands.verify import command
from models.checkpoint import load, save
from tests.export.conftest import CONFIGS, checkpoint_of
from tests.service.bundles import Spec, rewrite_manifest, write_bundle


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", Spec())


def test_from_the_probes(bundle: Path):
    result = run(bundle)
    assert result.exit_code == 0, result.stderr
    assert "against the bundle's probes" in result.stdout
    assert "forecast.onnx, probes" in result.stdout
    assert "explain.onnx, probes" in result.stdout
    assert result.stdout.rstrip().endswith("repeat@1: verified")


def test_report_prints_what_was_verified_at_export(bundle: Path):
    (bundle / layout.WEIGHTS).unlink()
    result = run(bundle, "--report")
    assert result.exit_code == 0, result.stderr
    assert "probes" not in result.stdout
    for check in read(bundle).verification.checks:
        assert check.name in result.stdout


def test_needs_no_torch(bundle: Path):
    code = (
        "import sys; from foretell.commands.verify import command\n"
        f"command([{str(bundle)!r}], standalone_mode=False)"
    )
    watched = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))\n{code}"
    said = subprocess.run(
        [sys.executable, "-c", watched], check=True, capture_output=True, text=True
    ).stdout
    assert said.splitlines()[-2:] == ["repeat@1: verified", "False"]


def test_a_changed_file(bundle: Path):
    weights = bundle / layout.WEIGHTS
    weights.write_bytes(b"\0" * weights.stat().st_size)
    result = run(bundle)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"foretell verify: {weights}: sha256 differs")
    assert "verified" not in result.stdout


def test_a_graph_that_forecasts_something_else(bundle: Path):
    weights = bundle / layout.WEIGHTS
    weights.write_bytes(b"\0" * weights.stat().st_size)
    # Sums that agree with the change: only the probes can tell.
    rewrite_manifest(bundle, Spec())
    result = run(bundle)
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert result.stdout.rstrip().endswith("repeat@1: FAILED")


def test_a_folder_that_is_no_bundle(tmp_path: Path):
    result = run(tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"foretell verify: {tmp_path / layout.MANIFEST}: missing\n"


def test_bad_arguments(bundle: Path, data: Path, tmp_path: Path):
    assert run(tmp_path / "nowhere").exit_code == 2
    result = run(bundle, f"--data={data}")
    assert result.exit_code == 2
    assert "--data needs --checkpoint" in result.stderr


def test_against_its_checkpoint(exported: tuple[Path, Result], checkpoint: Path):
    result = run(exported[0] / "small" / "1", f"--checkpoint={checkpoint}")
    assert result.exit_code == 0, result.stderr
    assert "against the bundle's probes" in result.stdout
    assert "against torch float64" in result.stdout
    assert result.stdout.rstrip().endswith("small@1: verified")


def test_against_another_checkpoint(exported: tuple[Path, Result], tmp_path: Path):
    bundle = exported[0] / "small" / "1"
    wider = CONFIGS["patchtst"].model_copy(update={"d_ff": 32})
    result = run(bundle, f"--checkpoint={checkpoint_of(wider, None, tmp_path / 'wider')}")
    assert result.exit_code == 2
    assert "its configuration is not that of" in result.stderr


def test_against_other_weights(exported: tuple[Path, Result], checkpoint: Path, tmp_path: Path):
    info, model = load(checkpoint)
    with torch.no_grad():
        next(model.parameters()).mul_(1.001)
    save(tmp_path / "other", model, info)
    result = run(exported[0] / "small" / "1", f"--checkpoint={tmp_path / 'other'}")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert result.stdout.rstrip().endswith("small@1: FAILED")
