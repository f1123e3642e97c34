"""`foretell verify` on a device, and with what torch made elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.verification import device
from foretell.verification.reference import of_checkpoint, save
from tests.foretell.test_verify import run
from tests.support.bundles import Spec, write_bundle


def test_a_reference_is_written_with_torch_and_used_without(
    bundles: dict[str, Path], checkpoints: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    bundle, path = bundles["patchtst"], tmp_path / "reference.npz"
    made = run(bundle, "--checkpoint", checkpoints["patchtst"], "--data", data, "--reference", path)
    assert made.exit_code == 0, made.stderr
    used = run(bundle, "--reference", path)
    assert used.exit_code == 0, used.stderr
    assert "on the CPU\nreplays differ from plain runs by 0\n" in used.stdout
    assert "CPU against torch float64" in used.stdout
    assert "forecast.onnx, offset 30 windows" in used.stdout
    assert used.stdout.endswith("patchtst@1: verified\n")


def test_a_reference_of_another_model_fails(
    bundles: dict[str, Path], checkpoints: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    cases = of_checkpoint(checkpoints["transformer"], data)
    save({name: cases[name] for name in ("natural", "constant")}, tmp_path / "reference.npz")
    result = run(bundles["patchtst"], "--reference", tmp_path / "reference.npz")
    assert result.exit_code == 1
    assert result.stderr.startswith("foretell verify: ")
    assert result.stdout.endswith("patchtst@1: FAILED\n")


def test_timings_and_a_device_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path, Spec())
    monkeypatch.setattr(device, "time_batches", lambda *_: {1: {"CPU, one thread": 0.002}})
    result = run(bundle, "--timings")
    assert result.exit_code == 0, result.stderr
    assert "CPU, one thread" in result.stdout
    assert "2.000" in result.stdout
    assert "500" in result.stdout
    result = run(bundle, "--device", "cuda")
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell verify: device cuda: ")
