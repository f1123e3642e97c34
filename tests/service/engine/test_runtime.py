from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bundle import layout
from bundle.errors import BundleError
from service.engine import runtime
from service.engine.memory import resident_bytes
from service.engine.runtime import CPU, CUDA, Runtime, check_distributions
from service.errors import StartError
from tests.service.bundles import Spec, write_bundle
from tests.service.cuda.fake import FakeGraph, FakeOptions, FakeValue, expected, history


class Sessions:
    """Makes sessions with the providers that work, as onnxruntime does: without a word.

    Attributes:
        works: Providers whose libraries exist.
        created: Arguments of every session of a file.
        refuses: Whether graphs for CUDA graphs are refused.
        breaks: Raised by captures, if set.
        driver: What the driver says to the CUDA provider, if that is wrong.
    """

    def __init__(self) -> None:
        self.works: tuple[str, ...] = (CPU,)
        self.created: list[dict[str, Any]] = []
        self.refuses = False
        self.breaks: Exception | None = None
        self.driver = ""
        self.nodes: list[Any] = []

    def __call__(self, graph: Any, options: Any, **arguments: Any) -> FakeGraph:
        names = [p if isinstance(p, str) else p[0] for p in arguments["providers"]]
        if names[0] == CUDA and self.driver:
            raise RuntimeError(self.driver)
        if isinstance(graph, Path):
            self.created.append({"options": options, **arguments})
            if self.refuses and names[0] == CUDA and self.cuda(-1)["enable_cuda_graph"] == "1":
                raise RuntimeError("not all nodes are on CUDA")
        graph = FakeGraph(next(name for name in names if name in self.works), self.nodes)
        graph.breaks, graph.breaks_captures = self.breaks, True
        return graph

    def cuda(self, index: int) -> dict[str, str]:
        """The CUDA options of a session."""
        provider, options = self.created[index]["providers"][0]
        assert provider == CUDA
        return dict(options)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An onnxruntime whose CUDA provider is compiled in; `works` says what really runs."""
    module = SimpleNamespace(
        sessions=Sessions(),
        calls=[],
        SessionOptions=FakeOptions,
        RunOptions=FakeOptions,
        OrtValue=FakeValue,
        OrtAllocatorType=onnxruntime.OrtAllocatorType,
        OrtMemType=onnxruntime.OrtMemType,
        OrtMemoryInfo=onnxruntime.OrtMemoryInfo,
        available=[CUDA, CPU],
        gpus=1,
    )
    module.InferenceSession = module.sessions
    module.disable_telemetry_events = lambda: module.calls.append("no telemetry")
    module.get_available_providers = lambda: module.available
    module.preload_dlls = lambda **arguments: module.calls.append(arguments)
    module.create_and_register_allocator = lambda info, _: module.calls.append(info.name)
    monkeypatch.setattr(runtime, "import_module", lambda name: module)
    monkeypatch.setattr(runtime, "gpu_count", lambda: module.gpus)
    return module


def test_cuda_when_it_works(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    opened = Runtime("auto")
    assert opened.on_gpu
    assert opened.workers(8) == 1
    assert opened.open(Path("g"), max_batch=4).provider == CUDA
    assert fake.calls == ["no telemetry", {"cudnn": False}]
    assert fake.sessions.cuda(0) == {
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "device_id": "0",
        "do_copy_in_default_stream": "1",
        "enable_cuda_graph": "1",
        "use_tf32": "0",
    }
    entries = fake.sessions.created[0]["options"].entries
    assert entries["session.record_ep_graph_assignment_info"] == "1"


def test_several_gpus_have_a_session_each(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    fake.gpus = 3
    opened = Runtime("cuda")
    assert opened.workers(8) == 3
    session = opened.open(Path("g"), max_batch=4)
    assert [fake.sessions.cuda(number)["device_id"] for number in range(3)] == ["0", "1", "2"]
    feeds = history(2)
    for worker in range(3):
        np.testing.assert_array_equal(session.run(feeds, worker)["forecast"], expected(feeds))


def test_a_graph_of_batches_of_any_size_is_not_captured(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    Runtime("cuda").open(Path("g"))
    assert fake.sessions.cuda(0)["enable_cuda_graph"] == "0"


def test_cuda_graphs_can_be_left_out(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    session = Runtime("cuda").open(Path("g"), max_batch=4, cuda_graphs=False)
    feeds = history(3)
    np.testing.assert_array_equal(session.run(feeds)["forecast"], expected(feeds))
    assert fake.sessions.cuda(0)["enable_cuda_graph"] == "0"


def test_a_graph_that_onnxruntime_will_not_capture_is_opened_without(
    fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    fake.sessions.works = (CUDA, CPU)
    fake.sessions.refuses = True
    session = Runtime("cuda").open(Path("g"), max_batch=4)
    session.warm(0)
    assert "without CUDA graphs: not all nodes are on CUDA" in caplog.text
    assert [fake.sessions.cuda(number)["enable_cuda_graph"] for number in (0, 1)] == ["1", "0"]


def test_a_capture_that_fails_opens_the_graph_again_on_that_gpu(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    fake.gpus = 2
    fake.sessions.breaks = RuntimeError("operation not permitted when stream is capturing")
    opened = Runtime("cuda").open(Path("g"), max_batch=1)
    fake.sessions.breaks = None
    for worker in (0, 1):
        opened.warm(worker)
    used = [fake.sessions.cuda(number) for number in range(-2, 0)]
    assert [each["device_id"] for each in used] == ["0", "1"]
    assert [each["enable_cuda_graph"] for each in used] == ["0", "0"]
    feeds = history(1)
    for worker in (0, 1):
        np.testing.assert_array_equal(opened.run(feeds, worker)["forecast"], expected(feeds))


def test_arithmetic_on_shapes_on_the_cpu_is_named(
    fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    fake.sessions.works = (CUDA, CPU)
    fake.gpus = 2
    nodes = [SimpleNamespace(name=f"node_{name}", op_type=name) for name in ("Shape", "Gather")]
    fake.sessions.nodes = [SimpleNamespace(ep_name=CPU, get_nodes=lambda: nodes)]
    with caplog.at_level("INFO", "service.engine.runtime"):
        Runtime("cuda").open(Path("g"))
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "g: arithmetic on shapes stays on the CPU: node_Shape (Shape), node_Gather (Gather)"
    ]


def test_a_graph_that_would_run_on_the_cpu_in_part_is_refused(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    node = SimpleNamespace(name="spectrum", op_type="DFT")
    fake.sessions.nodes = [SimpleNamespace(ep_name=CPU, get_nodes=lambda: [node])]
    with pytest.raises(BundleError, match=r"1 of its nodes on the CPU: spectrum \(DFT\)"):
        Runtime("cuda").open(Path("g"))


def test_auto_falls_back_to_the_cpu_and_says_so(
    fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Runtime("auto")
    assert not opened.on_gpu
    assert opened.workers(8) == 8
    assert "using the CPU" in caplog.text
    assert opened.open(Path("g"), max_batch=4).provider == CPU
    (created,) = fake.sessions.created
    assert created["providers"] == [CPU]
    assert created["disabled_optimizers"] == ["SkipLayerNormFusion"]


@pytest.mark.parametrize("driver", ["", "CUDA failure 35: CUDA driver version is insufficient"])
def test_cuda_never_falls_back(fake: SimpleNamespace, driver: str) -> None:
    fake.sessions.driver = driver
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        Runtime("cuda")


def test_a_driver_that_cannot_be_used_is_named(
    fake: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    fake.sessions.driver = "CUDA failure 35: CUDA driver version is insufficient"
    assert not Runtime("auto").on_gpu
    assert "could not use CUDA: CUDA failure 35" in caplog.text


def test_sessions_never_mix_devices(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    opened = Runtime("auto")
    fake.sessions.works = (CPU,)
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        opened.open(Path("h"))


def test_the_graph_that_tries_a_provider_is_one() -> None:
    session = onnxruntime.InferenceSession(runtime._IDENTITY, providers=[CPU])
    one = np.ones(1, np.float32)
    assert session.run(None, {"x": one}) == [one]


def test_cuda_needs_its_distribution(fake: SimpleNamespace) -> None:
    fake.available = [CPU]
    with pytest.raises(StartError, match="extra gpu instead of cpu"):
        Runtime("cuda")


def test_cpu_takes_no_gpu(fake: SimpleNamespace) -> None:
    fake.sessions.works = (CUDA, CPU)
    assert Runtime("cpu").open(Path("g")).provider == CPU
    assert fake.calls == ["no telemetry", "Cpu"]
    options = fake.sessions.created[0]["options"]
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.entries["session.intra_op.allow_spinning"] == "0"
    assert options.entries["session.use_env_allocators"] == "1"


def test_sessions_share_what_they_keep_for_their_runs(runtime: Runtime, tmp_path: Path) -> None:
    graph = write_bundle(tmp_path, Spec(context=4096, horizon=4096)) / layout.FORECAST_GRAPH
    rows = {"history": np.ones((256, 4096, 1), np.float32)}
    sessions = [runtime.open(graph) for _ in range(8)]
    sessions[0].run(rows)
    held = resident_bytes()
    for session in sessions[1:]:
        session.run(rows)
    # A run needs 4 MiB for the repeated row alone.
    assert resident_bytes() - held < 3 * 4 * 1024 * 1024


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
