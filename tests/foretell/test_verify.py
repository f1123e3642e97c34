"""`foretell verify`: from the probes, against a checkpoint, and on a device."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
import torch
from click.testing import Result

from foretell.bundle import layout
from foretell.bundle.manifest import read
from foretell.export.comparison import Reference
from foretell.export.window_set import WindowSet
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load, save
from foretell.verification import device, reference
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.bundles import Spec, rewrite_manifest, softmax_stage, write_bundle
from tests.support.command import done, refused, run

SPEC = Spec(stages=(softmax_stage(),))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", SPEC)


@pytest.fixture
def small(exported: tuple[Path, Result]) -> Path:
    """A bundle of `checkpoint`."""
    return exported[0] / "small" / "1"


def test_verifies_from_the_probes(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(bundle)
    output = done("verify", ".").stdout
    assert output.endswith("repeat@1: verified\n")
    assert f"opened with onnxruntime {onnxruntime.__version__}, CPUExecution" in output
    assert "no server" not in output


def test_names_the_libraries_of_a_bundle_and_of_this_process(tmp_path: Path):
    spec = Spec(changes={"libraries": {"foretell": "0.1.0", "onnxruntime": "1.2.3"}})
    output = done("verify", write_bundle(tmp_path, spec)).stdout
    assert "float32, written with foretell 0.1.0, onnxruntime 1.2.3\n" in output
    assert f"opened with onnxruntime {onnxruntime.__version__}" in output


def test_report_prints_what_was_verified_at_export(bundle: Path):
    (bundle / layout.WEIGHTS).unlink()
    output = done("verify", bundle, "--report").stdout
    assert "verified" not in output
    assert output.startswith("for: cuda, cpu\n")
    for check in read(bundle).verification.checks:
        assert check.name in output


def no_sums(bundle: Path) -> None:
    manifest = read(bundle).model_copy(update={"files": {}})
    (bundle / layout.MANIFEST).write_text(manifest.model_dump_json())


def zero_weights(bundle: Path) -> None:
    weights = bundle / layout.WEIGHTS
    weights.write_bytes(b"\0" * weights.stat().st_size)


def other_forecasts(bundle: Path) -> None:
    zero_weights(bundle)
    # The manifest has the sums of the changed files: only the probes fail.
    rewrite_manifest(bundle, SPEC)


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
        (zero_weights, "weights.bin: sha256 differs"),
        (other_forecasts, "forecast.onnx: the probes' forecasts on CPUExecutionProvider differ"),
        (damaged(layout.FORECAST_GRAPH), "forecast.onnx: onnxruntime refuses it"),
        (damaged(layout.EXPLAIN_GRAPH), "explain.onnx: onnxruntime refuses it"),
        (damaged(layout.PROBES), "probes.npz: cannot be read"),
        (missing(layout.PROBES), "probes.npz: missing"),
        (missing(layout.MANIFEST), "manifest.json: missing"),
        (folder_for_a_manifest, "manifest.json: Is a directory"),
    ],
)
def test_refuses_bundles_that_the_server_refuses(
    bundle: Path, spoil: Callable[[Path], None], message: str
):
    spoil(bundle)
    assert message in refused("verify", bundle, status=1)


def test_bundle_for_gpus_is_not_opened_on_a_cpu(tmp_path: Path):
    bundle = write_bundle(tmp_path, Spec(changes={"devices": ("cuda",)}))
    message = refused("verify", bundle, status=1)
    assert "is for cuda alone: it has operators without a kernel on the CPU" in message


@pytest.mark.parametrize("place", ["staging", "models/repeat/2", "models/other/1"])
def test_verifies_a_bundle_at_any_place(bundle: Path, tmp_path: Path, place: str):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    folder = bundle.rename(tmp_path / place)
    output = done("verify", folder).stdout
    assert f"servers do not load it from here: {folder}: the manifest is of repeat" in output
    assert output.endswith("repeat@1: verified\n")


def test_bad_arguments_are_refused(bundle: Path, data: Path, tmp_path: Path):
    assert run("verify", tmp_path / "nowhere").exit_code == 2
    result = run("verify", bundle, f"--data={data}")
    assert result.exit_code == 2
    assert "--data needs --checkpoint" in result.stderr
    assert refused("verify", bundle, "--device=cuda").startswith("foretell verify: device cuda: ")


def test_verifies_against_its_checkpoint(small: Path, checkpoint: Path):
    output = done("verify", small, f"--checkpoint={checkpoint}").stdout
    assert "against torch float64" in output
    assert output.endswith("small@1: verified\n")


def test_another_checkpoint_is_refused(small: Path, tmp_path: Path):
    wider = CONFIGS["patchtst"].model_copy(update={"d_ff": 32})
    other = checkpoint_of(wider, None, tmp_path / "wider")
    result = run("verify", small, f"--checkpoint={other}")
    assert result.exit_code == 2
    assert "its configuration is not that of" in result.stderr


def test_other_weights_than_the_checkpoints_fail(small: Path, checkpoint: Path, tmp_path: Path):
    info, model = load(checkpoint)
    with torch.no_grad():
        next(model.parameters()).mul_(1.001)
    save(tmp_path / "other", model, info)
    result = run("verify", small, f"--checkpoint={tmp_path / 'other'}")
    assert result.exit_code == 1
    assert result.stdout.endswith("small@1: FAILED\n")


def test_bfloat16_is_compared_with_its_checkpoint_and_not_opened(checkpoint: Path, tmp_path: Path):
    bundle = export_checkpoint(checkpoint, tmp_path, precision="bfloat16")
    output = done("verify", bundle, f"--checkpoint={checkpoint}").stdout
    assert "not opened: a CPU has no kernels for some of its operators" in output
    assert "CPUExecutionProvider, emulating bfloat16, against torch" in output
    zero_weights(bundle)
    output = refused("verify", bundle, f"--checkpoint={checkpoint}", status=1)
    assert output.startswith(f"foretell verify: {bundle / layout.WEIGHTS}: sha256 differs")


def test_reference_is_written_with_torch_and_used_without(
    small: Path, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "reference.npz"
    done("verify", small, "--checkpoint", checkpoint, "--reference", path)
    output = done("verify", small, "--reference", path).stdout
    assert "on the CPU\nreplays differ from plain runs by 0\n" in output
    assert "CPU against torch float64" in output
    assert "forecast.onnx, offset 30 windows" in output
    assert output.endswith("small@1: verified\n")
    case = reference.of_checkpoint(checkpoint, None)["constant"]
    other = replace(case, exact=Reference({"forecast": case.exact.forecast + 1}))
    # Reference of a model with another context.
    short = replace(case, windows=WindowSet("natural", {"history": case.windows.history[:, 1:]}))
    for cases in ({"constant": other}, {"natural": short}):
        reference.save(cases, path)
        result = run("verify", small, "--reference", path)
        assert result.exit_code == 1
        assert result.stderr.startswith("foretell verify: ")
        assert result.stdout.endswith("small@1: FAILED\n")


def test_timings_are_printed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "time_batches", lambda *_: {1: {"CPU, one thread": 0.002}})
    output = done("verify", bundle, "--timings").stdout
    assert "CPU, one thread" in output
    assert "2.000" in output
    assert "500" in output
