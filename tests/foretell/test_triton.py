from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from google.protobuf import text_format

from foretell.bundle import manifest as manifests
from foretell.bundle.distribution import Distribution
from foretell.hosts.triton import configuration
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused, run

protobuf = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="tritonclient[grpc]")

PLAIN = Spec(name="house", channels=("load", "wind"))
CALENDAR = Spec(name="calendar", with_calendar=True, margin_bound=0.1)
CPU = Spec(name="cpu", changes={"devices": ("cpu",)})


def parsed(text: str) -> Any:
    """A configuration, as Triton's own protobuf reads it: a wrong field is an error."""
    return text_format.Parse(text, protobuf.ModelConfig())


@pytest.mark.parametrize("spec", [PLAIN, CALENDAR, CPU], ids=lambda spec: spec.name)
def test_triton_configuration_with_the_bundles_graph(spec: Spec, tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", spec)
    bundle = tmp_path / "models" / spec.name / "1"
    result = done("export", bundle, f"--triton={tmp_path / 'triton'}")
    assert result.stderr == ""
    place = tmp_path / "triton" / spec.name / "1"
    assert result.stdout == f"written to {place}\n"
    assert sorted(path.name for path in place.iterdir()) == ["model.onnx", "weights.bin"]
    assert sorted(path.name for path in place.parent.iterdir()) == ["1", "config.pbtxt"]
    config = parsed((place.parent / "config.pbtxt").read_text())
    assert (config.name, config.backend) == (spec.name, "onnxruntime")
    assert config.default_model_filename == "model.onnx"
    assert config.version_policy.HasField("all")
    assert config.HasField("dynamic_batching")
    session = onnxruntime.InferenceSession(place / "model.onnx")
    probes = dict(np.load(bundle / "probes.npz"))
    forecast = probes.pop("forecast")
    assert len(forecast) <= config.max_batch_size
    for tensors, nodes in (
        (config.input, session.get_inputs()),
        (config.output, session.get_outputs()),
    ):
        assert [tensor.name for tensor in tensors] == [node.name for node in nodes]
        for tensor, node in zip(tensors, nodes, strict=True):
            assert node.type == "tensor(float)"
            assert tensor.data_type == protobuf.TYPE_FP32
            shape = [] if tensor.HasField("reshape") else list(tensor.dims)
            known = [size for size in node.shape[1:] if isinstance(size, int)]
            assert len(shape) == len(node.shape) - 1
            assert not known or known == shape
    assert np.allclose(session.run(["forecast"], probes)[0], forecast, atol=1e-5)
    assert list(config.output[0].dims) == [*forecast.shape[1:]]
    assert list(config.input[0].dims) == [*probes["history"].shape[1:]]


def test_distributions_are_an_output(tmp_path: Path) -> None:
    """Between forecast and margin, as the graph has them."""
    write_bundle(tmp_path, CALENDAR)
    about = manifests.read(tmp_path / CALENDAR.name / "1")
    drawn = about.model_copy(update={"distribution": Distribution.of("student-t")})
    found = {one.name: list(one.dims) for one in parsed(configuration(drawn)).output}
    assert list(found) == ["forecast", "distribution", "margin"]
    assert found["distribution"] == [*found["forecast"], 3]


def test_models_for_cpus_have_kind_cpu(tmp_path: Path) -> None:
    for spec, kind in ((PLAIN, "KIND_AUTO"), (CPU, "KIND_CPU")):
        write_bundle(tmp_path, spec)
        config = parsed(configuration(manifests.read(tmp_path / spec.name / "1")))
        (group,) = config.instance_group
        assert group.kind == protobuf.ModelInstanceGroup.Kind.Value(kind)
        assert ("intra_op_thread_count" in config.parameters) == (kind == "KIND_CPU")


def test_versions_share_a_tuned_configuration(tmp_path: Path) -> None:
    config = tmp_path / "house" / "config.pbtxt"
    given = ["export", tmp_path / "models" / "house", f"--triton={tmp_path}"]
    tuned = ""
    for version in ("1", "2"):
        write_bundle(tmp_path / "models", Spec(name="house", version=version))
        done(*given)
        assert not tuned or config.read_text() == tuned
        tuned = config.read_text().replace("max_batch_size: 64", "max_batch_size: 8")
        config.write_text(tuned)
    there = sorted(path.name for path in (tmp_path / "house").iterdir())
    assert there == ["1", "2", "config.pbtxt"]
    assert refused(*given) == f"foretell export: {tmp_path / 'house' / '2'}: exists already\n"


@pytest.mark.parametrize("change", [{"changes": {"devices": ("cpu",)}}, {"horizon": 5}])
def test_versions_that_the_configuration_does_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    given = ["export", tmp_path / "models" / "house", f"--triton={tmp_path}"]
    both = {"changes": {"devices": ("cpu", "cuda")}}
    write_bundle(tmp_path / "models", Spec(name="house", **both))
    done(*given)
    write_bundle(tmp_path / "models", Spec(name="house", version="2", **both | change))
    assert "config.pbtxt: is not what house@2 needs" in refused(*given)
    assert not (tmp_path / "house" / "2").exists()


def test_damaged_bundle_writes_nothing(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", PLAIN)
    (tmp_path / "models" / "house" / "1" / "weights.bin").write_bytes(b"")
    message = refused("export", tmp_path / "models" / "house", f"--triton={tmp_path / 'triton'}")
    assert "weights.bin" in message
    assert not (tmp_path / "triton").exists()


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("house", [], "is a bundle: it needs --triton or --mlflow"),
        ("house", ["--triton=triton", "--calibration-passes=2"], "--calibration-passes applies to"),
        ("empty", ["--triton=triton"], "is not a bundle: a checkpoint needs --out"),
    ],
)
def test_options_of_bundles_and_checkpoints(
    tmp_path: Path, folder: str, options: list[str], message: str
) -> None:
    write_bundle(tmp_path, PLAIN)
    (tmp_path / "empty").mkdir()
    result = run("export", tmp_path / folder, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_checkpoint_is_exported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path, PLAIN)
    (tmp_path / "checkpoint").mkdir()
    exported = []

    def export(checkpoint: Path, repository: Path, **options: Any) -> Path:
        exported.append((checkpoint, repository, options["calibration_passes"]))
        return tmp_path / "house" / "1"

    monkeypatch.setattr("foretell.commands.export._export", export)
    given = [f"--out={tmp_path / 'models'}", f"--triton={tmp_path / 'triton'}"]
    done("export", tmp_path / "checkpoint", *given, "--calibration-passes=2")
    assert exported == [(tmp_path / "checkpoint", tmp_path / "models", 2)]
    assert (tmp_path / "triton" / "house" / "1" / "model.onnx").is_file()
