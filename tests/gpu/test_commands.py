"""`foretell verify` and `foretell batch --device cuda` on the stand-in, except for numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from pyarrow import parquet

from foretell.export.write import export_checkpoint
from foretell.verification.reference import of_checkpoint, save
from tests.foretell.batch.tables import many
from tests.support.bundles import Spec, write_bundle
from tests.support.stand_in.log import forbidden, read
from tests.support.stand_in.machine import ROOT, Machine

MODULE = "tests.support.stand_in.foretell"


@pytest.fixture(scope="module")
def references(
    checkpoints: dict[str, Path], data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Forecasts of torch for each model's windows, as NAME.npz."""
    folder = tmp_path_factory.mktemp("references")
    for name, checkpoint in checkpoints.items():
        save(of_checkpoint(checkpoint, data), folder / f"{name}.npz")
    return folder


@pytest.mark.parametrize("name", ["autoformer", "transformer", "patchtst"])
def test_verify_checks_a_bundle_on_two_gpus(
    stand_in: Machine, bundles: dict[str, Path], references: Path, tmp_path: Path, name: str
) -> None:
    machine, log = Machine(stand_in.folder, 2), tmp_path / "log"
    words = ("verify", bundles[name], "--reference", references / f"{name}.npz", "--device", "cuda")
    output = machine.run(MODULE, *words, log=log, seconds=300)
    assert "on 2 GPU\n" in output
    assert "CUDA against torch float64" in output
    assert output.endswith(f"{name}@1: verified\n")
    assert forbidden(read(log)) == []


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_verify_checks_and_times_half_precision(
    stand_in: Machine,
    checkpoints: dict[str, Path],
    data: Path,
    references: Path,
    tmp_path: Path,
    precision: str,
) -> None:
    bundle = export_checkpoint(checkpoints["patchtst"], tmp_path, data=data, precision=precision)  # type: ignore[arg-type]
    words = ("verify", bundle, "--reference", references / "patchtst.npz", "--device", "cuda")
    timed = ("--timings",) if precision == "bfloat16" else ()
    output = stand_in.run(MODULE, *words, *timed, seconds=300)
    assert output.endswith("patchtst@1: verified\n")
    assert ("CUDA graph" in output) == bool(timed)


def test_verify_fails_if_the_gpu_computes_nothing(
    stand_in: Machine, bundles: dict[str, Path], references: Path
) -> None:
    """Options cannot switch off the comparison of numbers."""
    ran = run(stand_in, "verify", bundles["patchtst"], "--reference", references / "patchtst.npz")
    assert ran.returncode == 1
    assert "differ from the expected ones" in ran.stderr
    assert ran.stdout.endswith("patchtst@1: FAILED\n")


def test_verify_on_cuda_without_a_gpu_is_refused(
    stand_in: Machine, bundles: dict[str, Path], references: Path
) -> None:
    machine = Machine(stand_in.folder, 0)
    ran = run(machine, "verify", bundles["patchtst"], "--reference", references / "patchtst.npz")
    assert ran.returncode == 2
    assert "device cuda: onnxruntime could not load its CUDA provider" in ran.stderr


def run(machine: Machine, *words: object, log: Path | None = None) -> CompletedProcess[str]:
    return subprocess.run(
        [machine.python, "-m", "foretell", *map(str, words), "--device", "cuda"],
        cwd=ROOT,
        env=machine.environment(log),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_batch_rejects_only_series_that_the_stand_in_cannot_compute(
    stand_in: Machine, tmp_path: Path
) -> None:
    """Its forked workers open their GPUs."""
    bundle, table = write_bundle(tmp_path / "models", Spec()), tmp_path / "table.parquet"
    parquet.write_table(many(4), table)
    words = ("batch", table, tmp_path / "out", "--model", bundle)
    done = run(stand_in, *words, log=tmp_path / "calls")
    assert done.returncode == 2
    assert "the probes' forecasts on CUDAExecutionProvider differ" in done.stderr
    calls = read(tmp_path / "calls")
    assert forbidden(calls) == []
    assert any(call.name == "end-capture" for call in calls)
