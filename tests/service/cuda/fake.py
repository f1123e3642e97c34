"""A GPU that computes on the CPU: the parts of CUDA's runtime and of onnxruntime that are used.

Addresses and copies are real, so that outputs of a run have passed every buffer.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from foretell.service.arrays import Arrays
from foretell.service.cuda.device import CaptureLock, CudaError, Device

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
GRAPH = "gpu_graph_id"
NAMES = {2: "cudaErrorMemoryAllocation", 700: "cudaErrorIllegalAddress", 719: "cudaErrorLaunch"}


class FakeLibrary:
    """Replaces `foretell.service.cuda.device.Library`.

    Attributes:
        calls: Calls in order: the name and its argument.
        held: Memory and streams that were not freed.
        fails: Error code by name of the call.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.held: dict[int, Any] = {}
        self.fails: dict[str, int] = {}
        self._streams = 0

    def name(self, code: int) -> str:
        return NAMES.get(code, "cudaErrorUnknown")

    def use(self, device: int) -> None:
        self._call("use", device)

    @contextmanager
    def using(self, device: int) -> Iterator[None]:
        self._call("use", device)
        yield
        self.calls.append(("use before", device))

    def open_stream(self) -> int:
        self._streams += 1
        self._call("open_stream", self._streams)
        self.held[self._streams] = "stream"
        return self._streams

    def close_stream(self, stream: int) -> None:
        self._call("close_stream", stream)
        del self.held[stream]

    def allocate(self, size: int) -> int:
        return self._take("allocate", size)

    def pin(self, size: int) -> int:
        return self._take("pin", size)

    def free(self, memory: int) -> None:
        self._call("free", memory)
        del self.held[memory]

    def unpin(self, memory: int) -> None:
        self._call("unpin", memory)
        del self.held[memory]

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        self._call("copy", size)
        assert self.held[stream] == "stream"
        ctypes.memmove(to, source, size)

    def wait(self, stream: int) -> None:
        self._call("wait", stream)

    def _take(self, call: str, size: int) -> int:
        self._call(call, size)
        memory = ctypes.create_string_buffer(b"\xff" * size, size)
        address = ctypes.addressof(memory)
        self.held[address] = memory
        return address

    def _call(self, call: str, about: int) -> None:
        self.calls.append((call, about))
        if code := self.fails.get(call):
            raise CudaError(code, self.name(code), call)


class FakeOptions:
    """`RunOptions` and `SessionOptions`."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.terminate = False

    def add_run_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    add_session_config_entry = add_run_config_entry


class FakeBinding:
    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.device = -1

    def bind_input(self, name: str, *place: Any) -> None:
        self.inputs[name] = self._array(*place)

    def bind_output(self, name: str, *place: Any) -> None:
        self.outputs[name] = self._array(*place)

    def _array(self, kind: str, device: int, dtype: Any, shape: Any, address: int) -> Any:
        assert kind == "cuda"
        self.device = device
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))
        return memory.view(dtype).reshape(shape)


class FakeGraph:
    """A session that forecasts twice the last row of the history, 3 steps.

    Attributes:
        captured: By id of the CUDA graph: the thread of the capture, and its binding.
        replayed: Ids of runs with buffers.
        plain: Sizes of the batches that ran without buffers.
        reserved: Bytes that its allocators reserved.
        breaks: Raised by runs with buffers, if set; only by captures if `breaks_captures`.
    """

    def __init__(self, provider: str = CUDA, nodes: Any = ()) -> None:
        self.provider = provider
        self.nodes = nodes
        self.captured: dict[str, tuple[int, FakeBinding]] = {}
        self.replayed: list[str] = []
        self.plain: list[int] = []
        self.reserved: list[tuple[int, Any]] = []
        self.breaks: Exception | None = None
        self.breaks_captures = False
        self._sess = self

    def get_providers(self) -> list[str]:
        return [self.provider, CPU]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="history", shape=["batch", 4, 2])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="forecast"), SimpleNamespace(name="lags")]

    def get_provider_graph_assignment_info(self) -> Any:
        return self.nodes

    def io_binding(self) -> FakeBinding:
        return FakeBinding()

    def create_ortvalue_from_shape_and_type(self, shape: list[int], _: Any, device: Any) -> None:
        self.reserved.append((shape[0], device))

    def run(self, names: Any, feeds: Arrays, options: FakeOptions) -> list[Any]:
        assert options.entries[GRAPH] == "-1"
        if options.terminate:
            raise RuntimeError("terminated")
        self.plain.append(len(feeds["history"]))
        found = {"forecast": _forecast(feeds["history"]), "lags": _lags(feeds["history"])}
        return [found[name] for name in names]

    def run_with_iobinding(self, binding: FakeBinding, options: FakeOptions) -> None:
        assert options.entries["disable_synchronize_execution_providers"] == "1"
        number = options.entries[GRAPH]
        new = number != "-1" and number not in self.captured
        if self.breaks is not None and (new or not self.breaks_captures):
            raise self.breaks
        if new:
            self.captured[number] = (threading.get_ident(), binding)
        elif number != "-1":
            assert self.captured[number] == (threading.get_ident(), binding)
        self.replayed.append(number)
        history = binding.inputs["history"]
        binding.outputs["forecast"][:] = _forecast(history)
        binding.outputs["lags"][:] = _lags(history)


def _forecast(history: np.ndarray[Any, Any]) -> Any:
    return np.repeat(2 * history[:, -1:], 3, axis=1)


def _lags(history: np.ndarray[Any, Any]) -> Any:
    return history[:, 0].astype(np.int64)


class FakeModule(SimpleNamespace):
    """onnxruntime, built for CUDA.

    Attributes:
        available: Providers that are compiled in.
        works: Providers whose libraries exist; others are skipped without an error.
        broken: Errors of broken GPUs by number.
        nodes: Devices of the graphs' nodes.
        created: Arguments of every session.
        calls: Other calls.
        severity: Lowest severity of its own log.
    """

    RunOptions = SessionOptions = FakeOptions
    OrtDeviceMemoryType = SimpleNamespace(HOST_ACCESSIBLE=5)
    OrtDeviceVendorId = SimpleNamespace(NVIDIA=0x10DE)
    OrtAllocatorType = onnxruntime.OrtAllocatorType
    OrtMemType = onnxruntime.OrtMemType
    OrtMemoryInfo = onnxruntime.OrtMemoryInfo
    cuda_version = "13.0"
    __version__ = "1.31.1"

    def __init__(self) -> None:
        super().__init__(
            available=[CUDA, CPU],
            works=(CUDA, CPU),
            broken={},
            nodes=[],
            created=[],
            calls=[],
            severity=2,
            capi=SimpleNamespace(onnxruntime_pybind11_state=SimpleNamespace(OrtDevice=_OrtDevice)),
        )

    def InferenceSession(self, graph: Any, options: Any = None, **arguments: Any) -> FakeGraph:  # noqa: N802
        providers = [(one, {}) if isinstance(one, str) else one for one in arguments["providers"]]
        name, own = providers[0]
        if name == CUDA and (reason := self.broken.get(int(own["device_id"]))):
            raise RuntimeError(reason)
        severity = self.severity if options is None else options.log_severity_level
        self.created.append({"graph": graph, "options": options, "severity": severity, **arguments})
        return FakeGraph(next(name for name, _ in providers if name in self.works), self.nodes)

    def cuda(self, index: int) -> dict[str, str]:
        """The CUDA options of a session."""
        provider, options = self.created[index]["providers"][0]
        assert provider == CUDA
        return dict(options)

    def disable_telemetry_events(self) -> None:
        self.calls.append("no telemetry")

    def set_default_logger_severity(self, severity: int) -> None:
        self.severity = severity

    def get_available_providers(self) -> list[str]:
        return list(self.available)

    def create_and_register_allocator(self, info: Any, _: Any) -> None:
        self.calls.append(info.name)


class _OrtDevice(tuple[int, ...]):
    def __new__(cls, *numbers: int) -> _OrtDevice:
        return super().__new__(cls, numbers)

    @staticmethod
    def gpu() -> int:
        return 1


MODULE = FakeModule()


def device(number: int = 0, library: FakeLibrary | None = None) -> Device:
    return Device(number, library or FakeLibrary(), CaptureLock())  # type: ignore[arg-type]


def history(windows: int) -> Arrays:
    rows = np.arange(windows * 8, dtype=np.float32).reshape(windows, 4, 2)
    return {"history": rows}


def expected(feeds: Arrays) -> Any:
    return _forecast(feeds["history"])
