"""An onnxruntime whose CUDA provider computes on the CPU, and writes down what it is asked."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from service.arrays import Arrays

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
GRAPH = "gpu_graph_id"


class FakeOptions:
    """`RunOptions` and `SessionOptions`."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.terminate = False

    def add_run_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    add_session_config_entry = add_run_config_entry


class FakeValue:
    """A buffer on a GPU."""

    def __init__(self, shape: list[int], kind: Any, device: tuple[str, int]) -> None:
        self.device = device
        self.rows = np.full(shape, np.nan, kind)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: list[int], kind: Any, device: str, number: int
    ) -> FakeValue:
        return cls(shape, kind, (device, number))

    def update_inplace(self, rows: np.ndarray[Any, Any]) -> None:
        assert rows.shape == self.rows.shape
        assert rows.flags.c_contiguous
        self.rows[:] = rows

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.rows.copy()


class FakeBinding:
    def __init__(self) -> None:
        self.inputs: dict[str, FakeValue] = {}
        self.outputs: dict[str, FakeValue] = {}

    def bind_ortvalue_input(self, name: str, value: FakeValue) -> None:
        self.inputs[name] = value

    def bind_ortvalue_output(self, name: str, value: FakeValue) -> None:
        self.outputs[name] = value


class FakeGraph:
    """A session that forecasts twice the last row of the history, 3 steps.

    Attributes:
        captured: By id of the CUDA graph: the thread that captured it, and the binding it reads.
        plain: Sizes of the batches that ran without buffers.
        breaks: Raised by runs with buffers, if set; by captures alone if `breaks_captures`.
    """

    def __init__(self, provider: str = CUDA, nodes: Any = ()) -> None:
        self.provider = provider
        self.nodes = nodes
        self.captured: dict[str, tuple[int, FakeBinding]] = {}
        self.replayed: list[str] = []
        self.plain: list[int] = []
        self.breaks: Exception | None = None
        self.breaks_captures = False

    def get_providers(self) -> list[str]:
        return [self.provider, CPU]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="history", shape=["batch", 4, 2])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="forecast")]

    def get_provider_graph_assignment_info(self) -> Any:
        return self.nodes

    def io_binding(self) -> FakeBinding:
        return FakeBinding()

    def run(self, names: Any, feeds: Arrays, options: FakeOptions) -> list[Any]:
        assert options.entries[GRAPH] == "-1"
        assert not options.terminate
        self.plain.append(len(feeds["history"]))
        return [_forecast(feeds["history"])]

    def run_with_iobinding(self, binding: FakeBinding, options: FakeOptions) -> None:
        number = options.entries[GRAPH]
        new = number != "-1" and number not in self.captured
        if self.breaks is not None and (new or not self.breaks_captures):
            raise self.breaks
        if options.terminate:
            raise RuntimeError("terminated")
        if new:
            self.captured[number] = (threading.get_ident(), binding)
        elif number != "-1":
            assert self.captured[number] == (threading.get_ident(), binding)
        self.replayed.append(number)
        binding.outputs["forecast"].rows[:] = _forecast(binding.inputs["history"].rows)


def _forecast(history: np.ndarray[Any, Any]) -> Any:
    return np.repeat(2 * history[:, -1:], 3, axis=1)


MODULE = SimpleNamespace(OrtValue=FakeValue, RunOptions=FakeOptions)


def history(windows: int) -> Arrays:
    rows = np.arange(windows * 8, dtype=np.float32).reshape(windows, 4, 2)
    return {"history": rows}


def expected(feeds: Arrays) -> Any:
    return _forecast(feeds["history"])
