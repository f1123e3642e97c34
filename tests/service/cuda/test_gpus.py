from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.service.cuda import gpus
from foretell.service.cuda.gpus import RECORD, Gpus, elsewhere
from foretell.service.errors import DeviceLostError, StartError
from tests.service.cuda.fake import CPU, CUDA, FakeLibrary, FakeModule, expected, history
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    library = FakeLibrary()
    monkeypatch.setattr(
        gpus, "preload", lambda major: library.calls.append(("preload", int(major)))
    )
    monkeypatch.setattr(gpus, "Library", lambda major: library)
    monkeypatch.setattr(gpus, "gpu_count", lambda: 1)
    return library


@pytest.fixture
def module() -> FakeModule:
    return FakeModule()


def test_cuda_options_of_a_session(library: FakeLibrary, module: FakeModule) -> None:
    session = Gpus(module).open(Path("g"), 4)
    assert library.calls[0] == ("preload", 13)
    assert module.cuda(-1) == {
        "arena_extend_strategy": "kSameAsRequested",
        "device_id": "0",
        "enable_cuda_graph": "1",
        "enable_cudnn": "0",
        "use_tf32": "0",
        "user_compute_stream": "1",
    }
    created = module.created[-1]
    assert created["disabled_optimizers"] == ("BiasSoftmaxFusion",)
    assert created["options"].entries["session.record_ep_graph_assignment_info"] == "1"
    assert session.captures


def test_every_gpu_has_a_session(
    library: FakeLibrary, module: FakeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: 3)
    session = Gpus(module).open(Path("g"), 4)
    assert [module.cuda(number)["device_id"] for number in range(-3, 0)] == ["0", "1", "2"]
    assert [module.cuda(number)["user_compute_stream"] for number in range(-3, 0)] == list("123")
    feeds = history(2)
    for worker in range(3):
        session.warm(worker)
        np.testing.assert_array_equal(session.run(feeds, worker)["forecast"], expected(feeds))


def test_gpus_that_do_not_work_are_left_out(
    library: FakeLibrary,
    module: FakeModule,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: 3)
    module.broken = {1: "CUDA failure 46: all CUDA-capable devices are busy or unavailable"}
    found = Gpus(module)
    assert [device.number for device in found.devices] == [0, 2]
    assert "could not use GPU 1: CUDA failure 46" in caplog.text
    found.open(Path("g"), 4)
    assert [module.cuda(number)["device_id"] for number in (-2, -1)] == ["0", "2"]


@pytest.mark.parametrize("how", ["none", "broken", "driver", "library"])
def test_no_working_gpu_is_a_start_error(
    library: FakeLibrary,
    module: FakeModule,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    def missing(major: str) -> None:
        raise OSError("libcublas.so.13: cannot open shared object file")

    if how == "none":
        monkeypatch.setattr(gpus, "gpu_count", lambda: 0)
    elif how == "broken":
        module.broken = {0: "CUDA failure 35: CUDA driver version is insufficient"}
    elif how == "driver":
        # Then onnxruntime uses the CPU without an error.
        module.works = (CPU,)
    else:
        monkeypatch.setattr(gpus, "preload", missing)
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        Gpus(module)
    if how == "broken":
        assert "could not use GPU 0: CUDA failure 35" in caplog.text
    if how == "library":
        assert "a library of CUDA is missing: libcublas.so.13" in caplog.text
    if how == "none":
        # Libraries that no graph needs are not loaded.
        assert caplog.messages == ["NVIDIA's driver is missing, or finds no GPU"]
        assert library.calls == []


def test_arithmetic_on_shapes_on_the_cpu_is_logged(
    library: FakeLibrary, module: FakeModule, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [SimpleNamespace(name=f"node_{name}", op_type=name) for name in ("Shape", "Gather")]
    module.nodes = [SimpleNamespace(ep_name=CPU, get_nodes=lambda: nodes)]
    with caplog.at_level("INFO", "foretell.service.cuda.gpus"):
        Gpus(module).open(Path("g"), None)
    assert caplog.messages == [
        "g: arithmetic on shapes stays on the CPU: node_Shape (Shape), node_Gather (Gather)"
    ]


def test_graph_with_nodes_on_the_cpu_is_refused(library: FakeLibrary, module: FakeModule) -> None:
    node = SimpleNamespace(name="spectrum", op_type="DFT")
    module.nodes = [SimpleNamespace(ep_name=CPU, get_nodes=lambda: [node])]
    with pytest.raises(BundleError, match=r"1 of its nodes on the CPU: spectrum \(DFT\)"):
        Gpus(module).open(Path("g"), None)
    assert not library.held


def test_sessions_never_mix_devices(library: FakeLibrary, module: FakeModule) -> None:
    found = Gpus(module)
    module.works = (CPU,)
    with pytest.raises(StartError, match="could not load its CUDA provider"):
        found.open(Path("h"), None)
    assert not library.held


@pytest.mark.parametrize("text", ["no memory", "CUDA failure 700: an illegal memory access"])
def test_graph_refused_by_one_gpu_is_closed_on_the_others(
    library: FakeLibrary, module: FakeModule, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: 2)
    found = Gpus(module)
    assert found.lost == {}
    module.broken = {1: text}
    with pytest.raises(BundleError, match=f"g: .*{text}") as error:
        found.open(Path("g"), None)
    assert not library.held
    is_lost = isinstance(found.devices[1].failure(ValueError()), DeviceLostError)
    assert is_lost == ("700" in text)
    assert list(found.lost) == [1] * is_lost
    assert ("GPU 1 is lost" in str(error.value)) == is_lost


def test_exception_during_opening_closes_the_other_gpus(
    library: FakeLibrary, module: FakeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "gpu_count", lambda: 2)
    found = Gpus(module)
    recorded: Iterator[tuple[list[str], list[str]]] = iter([([], [])])
    monkeypatch.setattr(gpus, "elsewhere", lambda *_: next(recorded))
    # An unexpected exception, here the end of an iterator.
    with pytest.raises(StopIteration):
        found.open(Path("g"), None)
    assert not library.held


def test_refused_session_is_freed_before_its_stream(
    library: FakeLibrary, module: FakeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[weakref.ref[object]] = []

    def found(session: object, provider: str) -> tuple[list[str], list[str]]:
        opened.append(weakref.ref(session))
        return ["node_x (X)"], []

    def close_stream(stream: int) -> None:
        gc.collect()
        assert opened[0]() is None
        del library.held[stream]

    monkeypatch.setattr(gpus, "elsewhere", found)
    library.close_stream = close_stream  # type: ignore[method-assign]
    with pytest.raises(BundleError, match="node_x"):
        Gpus(module).open(Path("g"), None)
    assert (len(opened), library.held) == (1, {})


def test_failed_stream_is_a_bundle_error(library: FakeLibrary, module: FakeModule) -> None:
    found = Gpus(module)
    library.fails = {"open_stream": 2}
    with pytest.raises(BundleError, match=r"g: CUDA error cudaErrorMemoryAllocation \(2\)"):
        found.open(Path("g"), None)


def test_graph_for_trying_gpus_is_valid() -> None:
    session = onnxruntime.InferenceSession(gpus._IDENTITY, providers=[CPU])
    one = np.ones(1, np.float32)
    assert session.run(None, {"x": one}) == [one]


def subgraph(provider: str, *operators: str) -> SimpleNamespace:
    nodes = [SimpleNamespace(name=f"node_{op}", op_type=op) for op in operators]
    return SimpleNamespace(ep_name=provider, get_nodes=lambda: nodes)


def session(*subgraphs: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(get_provider_graph_assignment_info=lambda: subgraphs)


def test_arithmetic_on_shapes_may_run_on_the_cpu() -> None:
    placed = session(subgraph(CUDA, "Add", "Slice"), subgraph(CPU, "Shape", "DFT", "Concat"))
    on_shapes = ["node_Shape (Shape)", "node_Concat (Concat)"]
    assert elsewhere(placed, CUDA) == (["node_DFT (DFT)"], on_shapes)


def test_session_of_onnxruntime_reports_the_devices_of_nodes(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*RECORD)
    graph = write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH
    real = onnxruntime.InferenceSession(graph, options, providers=[CPU])
    assert elsewhere(real, CPU) == ([], [])
    assert elsewhere(real, CUDA)[0]
