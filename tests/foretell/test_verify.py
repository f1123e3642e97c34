import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch
from click.testing import CliRunner, Result

from foretell.bundle import layout
from foretell.bundle.manifest import read
from foretell.commands.verify import command
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load, save
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.bundles import Spec, rewrite_manifest, softmax_stage, write_bundle

SPEC = Spec(stages=(softmax_stage(),))


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", SPEC)


def test_from_the_probes(bundle: Path):
    result = run(bundle)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("repeat@1: verified\n")
    assert f"opened with onnxruntime {onnxruntime.__version__}, CPUExecution" in result.stdout


def test_a_bundle_of_another_onnxruntime_is_told_from_its_probes(tmp_path: Path):
    spec = Spec(changes={"libraries": {"foretell": "0.1.0", "onnxruntime": "1.2.3"}})
    result = run(write_bundle(tmp_path, spec))
    assert result.exit_code == 0, result.stderr
    assert "float32, written with foretell 0.1.0, onnxruntime 1.2.3\n" in result.stdout
    assert f"opened with onnxruntime {onnxruntime.__version__}" in result.stdout


def test_a_bundle_for_gpus_cannot_be_opened_on_a_cpu(tmp_path: Path):
    result = run(write_bundle(tmp_path, Spec(changes={"devices": ("cuda",)})))
    assert result.exit_code == 1
    assert "is for cuda alone: it has operators without a kernel on the CPU" in result.stderr


def test_report_prints_what_was_verified_at_export(bundle: Path):
    (bundle / layout.WEIGHTS).unlink()
    result = run(bundle, "--report")
    assert result.exit_code == 0, result.stderr
    assert "verified" not in result.stdout
    assert result.stdout.startswith("for: cuda, cpu\n")
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
    rewrite_manifest(bundle, SPEC)
    result = run(bundle)
    assert result.exit_code == 1
    assert "forecast.onnx: the probes' forecasts on CPUExecutionProvider differ" in result.stderr
    assert result.stdout == ""


def no_sums(bundle: Path) -> None:
    manifest = read(bundle).model_copy(update={"files": {}})
    (bundle / layout.MANIFEST).write_text(manifest.model_dump_json())


def damaged(file: str) -> Callable[[Path], None]:
    def damage(bundle: Path) -> None:
        (bundle / file).write_bytes(b"damaged")
        rewrite_manifest(bundle, SPEC)

    return damage


def missing(file: str) -> Callable[[Path], None]:
    return lambda bundle: (bundle / file).unlink()


def folder_for_a_manifest(bundle: Path) -> None:
    (bundle / layout.MANIFEST).unlink()
    (bundle / layout.MANIFEST).mkdir()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_sums, "the manifest has no checksum of forecast.onnx"),
        (damaged(layout.FORECAST_GRAPH), "forecast.onnx: onnxruntime refuses it"),
        (damaged(layout.EXPLAIN_GRAPH), "explain.onnx: onnxruntime refuses it"),
        (damaged(layout.PROBES), "probes.npz: cannot be read"),
        (missing(layout.PROBES), "probes.npz: missing"),
        (missing(layout.MANIFEST), "manifest.json: missing"),
        (folder_for_a_manifest, "manifest.json: Is a directory"),
    ],
)
def test_what_the_server_refuses(bundle: Path, spoil: Callable[[Path], None], message: str):
    spoil(bundle)
    result = run(bundle)
    assert result.exit_code == 1
    assert result.stderr.startswith("foretell verify: ")
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("place", ["staging", "models/repeat/2", "models/other/1"])
def test_a_bundle_at_any_place(bundle: Path, tmp_path: Path, place: str):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    folder = bundle.rename(tmp_path / place)
    result = run(folder)
    assert result.exit_code == 0, result.stderr
    assert f"no server takes it from here: {folder}: the manifest is of repeat" in result.stdout
    assert result.stdout.endswith("repeat@1: verified\n")
    (folder / layout.WEIGHTS).unlink()
    result = run(folder)
    assert result.exit_code == 1
    assert result.stderr == f"foretell verify: {folder / layout.WEIGHTS}: missing\n"


def test_where_a_server_takes_it_nothing_is_said(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(bundle)
    result = run(".")
    assert result.exit_code == 0, result.stderr
    assert "no server" not in result.stdout


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


def test_bfloat16_against_its_checkpoint(checkpoint: Path, tmp_path: Path):
    bundle = export_checkpoint(checkpoint, tmp_path, precision="bfloat16")
    result = run(bundle, f"--checkpoint={checkpoint}")
    assert result.exit_code == 0, result.stderr
    assert "not opened: a CPU has no kernels for some of its operators" in result.stdout
    assert "CPUExecutionProvider, emulating bfloat16, against torch" in result.stdout
    weights = bundle / layout.WEIGHTS
    weights.write_bytes(b"\0" * weights.stat().st_size)
    result = run(bundle, f"--checkpoint={checkpoint}")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"foretell verify: {weights}: sha256 differs")
