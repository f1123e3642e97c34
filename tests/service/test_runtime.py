from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bundle import layout
from bundle.errors import BundleError
from service import runtime
from service.errors import StartError
from service.runtime import CPU, CUDA, Runtime, check_distributions
from tests.service.bundles import Spec, write_bundle


class FakeSession:
    """Has the providers of which a CUDA library exists, as onnxruntime does: without a word."""

    works: tuple[str, ...] = (CPU,)
    created: list[dict[str, Any]]

    def __init__(self, graph: Path, options: Any, **arguments: Any) -> None:
        self.created.append({"options": options, **arguments})
        names = [p if isinstance(p, str) else p[0] for p in arguments["providers"]]
        self._providers = [name for name in names if name in self.works]

    def get_providers(self) -> list[str]:
        return self._providers

    def get_inputs(self) -> list[Any]:
        return []

    def get_outputs(self) -> list[Any]:
        return []


class FakeOptions:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An onnxruntime whose CUDA provider is compiled in; `works` says what really runs."""
    sessions = type("Sessions", (FakeSession,), {"created": []})
    module = SimpleNamespace(
        sessions=sessions,
        calls=[],
        InferenceSession=sessions,
        SessionOptions=FakeOptions,
        RunOptions=SimpleNamespace,
        available=[CUDA, CPU],
    )
    module.disable_telemetry_events = lambda: module.calls.append("no telemetry")
    module.get_available_providers = lambda: module.available
    module.preload_dlls = lambda **arguments: module.calls.append(arguments)
    monkeypatch.setattr(runtime, "import_module", lambda name: module)
    return module


def test_cuda_when_it_works(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    opened = Runtime("auto")
    assert opened.open(Path("g")).provider == CUDA
    assert opened.on_gpu
    assert fake.calls == ["no telemetry", {"cudnn": False}]
    provider, options = fake.sessions.created[0]["providers"][0]
    assert (provider, options["use_tf32"]) == (CUDA, "0")


def test_auto_falls_back_to_the_cpu_and_says_so(
    fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Runtime("auto")
    assert opened.open(Path("g")).provider == CPU
    assert not opened.on_gpu
    assert "serving from the CPU" in caplog.text
    last = fake.sessions.created[-1]
    assert last["providers"] == [CPU]
    assert last["disabled_optimizers"] == ["SkipLayerNormFusion"]


def test_cuda_never_falls_back(fake: SimpleNamespace) -> None:
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        Runtime("cuda").open(Path("g"))


def test_sessions_never_mix_devices(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    opened = Runtime("auto")
    opened.open(Path("g"))
    fake.sessions.works = (CPU,)
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        opened.open(Path("h"))


def test_cuda_needs_its_distribution(fake: SimpleNamespace) -> None:
    fake.available = [CPU]
    with pytest.raises(StartError, match="extra gpu instead of cpu"):
        Runtime("cuda")


def test_cpu_takes_no_gpu(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    assert Runtime("cpu").open(Path("g")).provider == CPU
    assert fake.calls == ["no telemetry"]
    options = fake.sessions.created[0]["options"]
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.entries["session.intra_op.allow_spinning"] == "0"
    assert options.enable_cpu_mem_arena is False


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ((), "no onnxruntime is installed"),
        (("onnxruntime", "onnxruntime-gpu"), "both installed"),
    ],
)
def test_exactly_one_distribution(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], message: str
) -> None:
    def distribution(name: str) -> None:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    with pytest.raises(StartError, match=message):
        check_distributions()


def test_opens_a_real_graph(runtime: Runtime, tmp_path: Path) -> None:
    session = runtime.open(write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH)
    assert session.provider == CPU


def test_a_graph_that_is_none(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(b"not a graph")
    with pytest.raises(BundleError, match="onnxruntime refuses it"):
        runtime.open(tmp_path / "graph.onnx")
