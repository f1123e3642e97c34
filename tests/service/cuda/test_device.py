"""CUDA's runtime and driver, their devices, and the lock of captures."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.service.cuda.device import CaptureLock, CudaError, Library, gpu_count, preload
from foretell.service.errors import DeviceLostError, ModelFailedError
from tests.service.cuda.fake import FakeLibrary, device

_NO_MEMORY = "Failed to allocate memory for requested buffer of size 256"
NODE = "Non-zero status code returned while running Sub node. Name:'node_sub' Status Message: "


@pytest.mark.parametrize(
    "message",
    [
        "Error in execution: CUDA failure 700: an illegal memory access was encountered",
        f"{NODE}CUDA error cudaErrorIllegalAddress:an illegal memory access was encountered",
        f"{NODE}CUDA failure 719: unspecified launch failure",
        "CUDA failure 999: unknown error",
        "CUDA failure 810: MPS client terminated",
        "CUDA failure 714: hardware stack error",
        "CUDA failure 721: tensor memory not completely freed",
    ],
)
def test_errors_of_a_lost_device_by_number_or_name(
    message: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = device(3)
    failure = gpu.failure(RuntimeError(f"{message}\nmore of it"))
    assert isinstance(failure, DeviceLostError)
    assert failure.message == gpu.lost == f"GPU 3 is lost: {message}"
    assert caplog.messages == [gpu.lost]


@pytest.mark.parametrize("code", [1, 2, 701, 713, 720, 900, 901, 906])
def test_other_errors_do_not_mark_the_device_lost(code: int) -> None:
    gpu = device()
    for error in (
        RuntimeError(f"CUDA failure {code}: …"),
        CudaError(code, "cudaErrorOther", "cudaMalloc"),
        RuntimeError(f"{NODE}CUDA error cudaErrorMemoryAllocation:out of memory"),
    ):
        assert isinstance(gpu.failure(error), ModelFailedError)
    assert gpu.lost is None


@pytest.mark.parametrize(
    ("text", "fails", "lost"),
    [
        (_NO_MEMORY, {"allocate": 700}, True),
        (_NO_MEMORY, {"use": 999}, True),
        (_NO_MEMORY, {"allocate": 2}, False),
        (_NO_MEMORY, {}, False),
        (_NO_MEMORY, {"allocate": 901}, False),
        # The first error of a lost device may look like another fault.
        ("CUDA failure 1: invalid argument", {"allocate": 700}, True),
        ("CUBLAS failure 14", {"allocate": 700}, True),
    ],
)
def test_device_that_fails_every_call_after_an_error_is_lost(
    text: str, fails: dict[str, int], lost: bool
) -> None:
    library = FakeLibrary()
    library.fails = fails
    gpu = device(library=library)
    assert isinstance(
        gpu.failure(RuntimeError(text)), DeviceLostError if lost else ModelFailedError
    )
    assert gpu.lost == (f"GPU 0 is lost: {text}" if lost else None)
    assert not library.held


def test_lost_device_keeps_its_first_reason(caplog: pytest.LogCaptureFixture) -> None:
    gpu = device()
    gpu.failure(RuntimeError("CUDA failure 700: illegal ; GPU=0 ; hostname=h ; file=/onnx.cc"))
    for code in (2, 719):
        assert isinstance(gpu.failure(RuntimeError(f"CUDA failure {code}")), DeviceLostError)
    # The message leaves out the place in onnxruntime's source.
    assert gpu.lost == "GPU 0 is lost: CUDA failure 700: illegal"
    assert len(caplog.messages) == 1


def test_errors_without_a_text_of_onnxruntime() -> None:
    gpu = device()
    assert isinstance(gpu.failure(CudaError(719, "cudaErrorOther", "cudaGraph")), DeviceLostError)
    assert gpu.lost == "GPU 0 is lost: CUDA error cudaErrorOther (719) in cudaGraph"
    library = FakeLibrary()
    library.fails = {"allocate": 700}
    gpu = device(library=library)
    gpu.failure(ValueError())
    assert gpu.lost == "GPU 0 is lost: ValueError"


class Holder:
    """A thread that enters, sets `inside`, and leaves when `leave` is set."""

    def __init__(self, enter: Callable[[], AbstractContextManager[None]]) -> None:
        self._enter = enter
        self.inside = threading.Event()
        self.leave = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        with self._enter():
            self.inside.set()
            assert self.leave.wait(60)

    def end(self) -> None:
        self.leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def holding(*enters: Callable[[], AbstractContextManager[None]]) -> Iterator[list[Holder]]:
    holders = [Holder(enter) for enter in enters]
    yield holders
    for holder in holders:
        holder.end()


@pytest.fixture
def lock() -> CaptureLock:
    return CaptureLock()


def test_calls_do_not_wait_for_each_other(lock: CaptureLock) -> None:
    with holding(lock.call, lock.call) as holders:
        assert all(holder.inside.wait(60) for holder in holders)


@pytest.mark.parametrize(
    ("first", "second"), [("capture", "capture"), ("capture", "call"), ("call", "capture")]
)
def test_capture_excludes_calls_and_captures(lock: CaptureLock, first: str, second: str) -> None:
    with holding(getattr(lock, first)) as (inside,):
        assert inside.inside.wait(60)
        with holding(getattr(lock, second)) as (outside,):
            assert not outside.inside.wait(0.05)
            inside.leave.set()
            assert outside.inside.wait(60)


def test_waiting_capture_precedes_later_calls(lock: CaptureLock) -> None:
    with holding(lock.call) as (early,):
        assert early.inside.wait(60)
        with holding(lock.capture) as (capture,):
            assert not capture.inside.wait(0.05)
            with holding(lock.call) as (late,):
                assert not late.inside.wait(0.05)
                early.leave.set()
                assert capture.inside.wait(60)
                assert not late.inside.wait(0.05)
                capture.leave.set()
                assert late.inside.wait(60)


@pytest.mark.parametrize("enter", ["capture", "call"])
def test_lock_is_released_after_an_error(lock: CaptureLock, enter: str) -> None:
    with pytest.raises(ValueError, match="inside"), getattr(lock, enter)():
        raise ValueError("inside")
    with lock.capture():
        pass
    with lock.call():
        pass


def driver(monkeypatch: pytest.MonkeyPatch, count: int, *, init: int = 0) -> None:
    def set_count(place: Any) -> int:
        place._obj.value = count
        return 0

    library = SimpleNamespace(cuInit=lambda flags: init, cuDeviceGetCount=set_count)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)


def test_gpus_are_counted_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_count("libnothing.so.1") == 0
    driver(monkeypatch, 4)
    assert gpu_count() == 4
    driver(monkeypatch, 4, init=100)
    assert gpu_count() == 0


LINKED = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10")
# More than 32 bits, like addresses.
MADE, STREAM, HOST = 0x7F00_1234_5678, 0x7F00_0000_1000, 0x7F00_0000_2000


class Runtime(SimpleNamespace):
    """CUDA's runtime, called through ctypes as the real one is.

    Attributes:
        calls: Names and arguments in order.
        code: Result of every call.
        name: Name of that code.
    """

    def __init__(self) -> None:
        super().__init__(calls=[], code=0, name=ctypes.create_string_buffer(b"cudaErrorWhatever"))
        made, address = POINTER(c_void_p), c_void_p
        for name, types in {
            "cudaGetDevice": (POINTER(c_int),),
            "cudaSetDevice": (c_int,),
            "cudaThreadExchangeStreamCaptureMode": (POINTER(c_int),),
            "cudaStreamCreateWithFlags": (made, c_uint),
            "cudaStreamDestroy": (address,),
            "cudaStreamSynchronize": (address,),
            "cudaMalloc": (made, c_size_t),
            "cudaFree": (address,),
            "cudaHostAlloc": (made, c_size_t, c_uint),
            "cudaFreeHost": (address,),
            "cudaMemcpyAsync": (address, address, c_size_t, c_int, address),
        }.items():
            setattr(self, name, CFUNCTYPE(c_int, *types)(self._answer(name)))
            getattr(self, name).__name__ = name
        self.cudaGetLastError = CFUNCTYPE(c_int)(self._last)
        self.cudaGetErrorName = CFUNCTYPE(c_void_p, c_int)(self._name)

    def _answer(self, name: str) -> Any:
        def answer(*arguments: Any) -> int:
            given = [one if isinstance(one, int) else one[0] for one in arguments]
            self.calls.append((name, *given))
            if isinstance(arguments[0], POINTER(c_void_p)):
                arguments[0][0] = MADE
            if name == "cudaGetDevice":
                arguments[0][0] = 5
            return int(self.code)

        return answer

    def _last(self) -> int:
        self.calls.append(("cudaGetLastError",))
        return int(self.code)

    def _name(self, code: int) -> int:
        assert code == self.code
        return ctypes.addressof(self.name)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    opened = {"libcudart.so.13": runtime}
    monkeypatch.setattr(ctypes, "CDLL", opened.__getitem__)
    monkeypatch.setattr(ctypes, "PyDLL", opened.__getitem__)
    return runtime


@pytest.mark.parametrize(
    ("method", "arguments", "call", "result"),
    [
        ("open_stream", (), ("cudaStreamCreateWithFlags", None, 1), MADE),
        ("close_stream", (STREAM,), ("cudaStreamDestroy", STREAM), None),
        ("allocate", (1 << 33,), ("cudaMalloc", None, 1 << 33), MADE),
        ("free", (MADE,), ("cudaFree", MADE), None),
        ("pin", (1 << 33,), ("cudaHostAlloc", None, 1 << 33, 0), MADE),
        ("unpin", (MADE,), ("cudaFreeHost", MADE), None),
        (
            "copy",
            (MADE, HOST, 1 << 33, STREAM),
            ("cudaMemcpyAsync", MADE, HOST, 1 << 33, 4, STREAM),
            None,
        ),
        ("wait", (STREAM,), ("cudaStreamSynchronize", STREAM), None),
    ],
)
def test_calls_of_the_library(
    runtime: Runtime, method: str, arguments: tuple[int, ...], call: tuple[Any, ...], result: object
) -> None:
    library = Library("13")
    assert getattr(library, method)(*arguments) == result
    assert runtime.calls == [call]
    runtime.code = 700
    with pytest.raises(
        CudaError, match=r"^CUDA error cudaErrorWhatever \(700\) in " + call[0]
    ) as e:
        getattr(library, method)(*arguments)
    assert e.value.code == 700
    # CUDA's last error is cleared.
    assert runtime.calls[2:] == [("cudaGetLastError",)]


def test_switching_devices_does_not_break_a_capture(runtime: Runtime) -> None:
    Library("13").use(3)
    assert runtime.calls == [("cudaSetDevice", 3), ("cudaThreadExchangeStreamCaptureMode", 1)]
    del runtime.cudaThreadExchangeStreamCaptureMode, runtime.calls[:]
    Library("13").use(3)
    assert runtime.calls == [("cudaSetDevice", 3)]
    runtime.code = 101
    with pytest.raises(CudaError, match="cudaSetDevice"):
        Library("13").use(3)


def test_thread_returns_to_its_earlier_device(runtime: Runtime) -> None:
    library = Library("13")

    def fail() -> None:
        with library.using(3):
            assert runtime.calls[-2] == ("cudaSetDevice", 3)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert runtime.calls[0] == ("cudaGetDevice", 0)
    assert runtime.calls[-2] == ("cudaSetDevice", 5)


def test_libraries_load_from_wheels_or_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("foretell.service.cuda.device.find_spec", lambda name: None)
    with pytest.raises(OSError, match=r"libcudart\.so\.99"):
        preload("99")
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    preload("13")
    assert loaded == list(LINKED)
    loaded.clear()
    wheel = tmp_path / "b" / "cu13" / "lib"
    wheel.mkdir(parents=True)
    for name in LINKED[1:]:
        (wheel / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "a"), str(tmp_path / "b")])
    monkeypatch.setattr("foretell.service.cuda.device.find_spec", {"nvidia": spec}.get)
    preload("13")
    assert loaded == [LINKED[0], *(str(wheel / name) for name in LINKED[1:])]
