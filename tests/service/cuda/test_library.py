from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.service.cuda.device import CudaError, Library, preload

LINKED = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10")
# Beyond 32 bits, as addresses are.
MADE, STREAM, HOST = 0x7F00_1234_5678, 0x7F00_0000_1000, 0x7F00_0000_2000


class Runtime(SimpleNamespace):
    """CUDA's runtime, called through ctypes as the real one is.

    Attributes:
        calls: Names and arguments, in order.
        code: What every call answers.
        name: The name of that code.
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
def test_calls(
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
    # Where CUDA keeps it for the next who asks, it is gone.
    assert runtime.calls[2:] == [("cudaGetLastError",)]


def test_a_thread_that_uses_a_device_breaks_no_capture(runtime: Runtime) -> None:
    Library("13").use(3)
    assert runtime.calls == [("cudaSetDevice", 3), ("cudaThreadExchangeStreamCaptureMode", 1)]


def test_a_thread_uses_again_what_it_used_before(runtime: Runtime) -> None:
    library = Library("13")

    def fail() -> None:
        with library.using(3):
            assert runtime.calls[-2] == ("cudaSetDevice", 3)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert runtime.calls[0] == ("cudaGetDevice", 0)
    assert runtime.calls[-2] == ("cudaSetDevice", 5)


def test_a_runtime_without_modes_of_capture(runtime: Runtime) -> None:
    del runtime.cudaThreadExchangeStreamCaptureMode
    Library("13").use(3)
    assert runtime.calls == [("cudaSetDevice", 3)]


def test_a_device_that_cannot_be_used(runtime: Runtime) -> None:
    runtime.code = 101
    with pytest.raises(CudaError, match="cudaSetDevice"):
        Library("13").use(3)


def test_libraries_come_from_their_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "b" / "cu13" / "lib"
    wheel.mkdir(parents=True)
    for name in LINKED[1:]:
        (wheel / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "a"), str(tmp_path / "b")])
    monkeypatch.setattr("foretell.service.cuda.device.find_spec", {"nvidia": spec}.get)
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    preload("13")
    assert loaded == [LINKED[0], *(str(wheel / name) for name in LINKED[1:])]


def test_libraries_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.service.cuda.device.find_spec", lambda name: None)
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    preload("13")
    assert loaded == list(LINKED)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.service.cuda.device.find_spec", lambda name: None)
    with pytest.raises(OSError, match=r"libcudart\.so\.99"):
        preload("99")
