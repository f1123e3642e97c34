"""Run an exported graph on the CPU, to compare it with torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx.external_data_helper import load_external_data_for_model
from torch import Tensor

from foretell.bundle.results import Precision
from foretell.export.clipping import without_bounds
from foretell.export.twin import float32_twin, half_precision
from foretell.export.window_set import Floats, arrays_of
from foretell.models.inputs import Inputs


class Graph:
    """An onnxruntime session on one of a bundle's graphs.

    A graph in half precision is run as its float32 twin: the CPU lacks the kernels of bfloat16, and
    those of float16 round less than a GPU's.

    Args:
        path: The graph; its weights lie next to it.
        bounded: Whether its forecasts are kept within the bounds of their channels.

    Attributes:
        emulates: The half precision of the graph, if it has one.
        outputs: Names of the outputs.
    """

    provider = "CPUExecutionProvider"
    library: str = onnxruntime.__version__

    def __init__(self, path: Path, *, bounded: bool = True) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.enable_mem_pattern = False
        # Threads that wait spinning would take torch's cores after each run.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        graph = onnx.load(path, load_external_data=False)
        self.emulates: Precision | None = half_precision(graph)
        served: str | bytes = str(path)
        if self.emulates is not None or not bounded:
            load_external_data_for_model(graph, str(path.parent))
            graph = graph if bounded else without_bounds(graph)
            graph = graph if self.emulates is None else float32_twin(graph)
            served = graph.SerializeToString()
        # The fused kernel is slower than what it replaces, and serving runs without it.
        self._session = onnxruntime.InferenceSession(
            served,
            options,
            providers=[self.provider],
            disabled_optimizers=["SkipLayerNormFusion"],
        )
        # The memory of a run is freed after it. Without an arena each result would need new pages,
        # which takes as long as computing a map, and more memory.
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._inputs = [value.name for value in self._session.get_inputs()]
        self.outputs = [value.name for value in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, NDArray[np.generic]]:
        """Run a batch of inputs by name; outputs by name."""
        feeds = {name: inputs[name] for name in self._inputs}
        return dict(zip(self.outputs, self._session.run(None, feeds, self._options), strict=True))

    def forecast(self, inputs: Mapping[str, Floats]) -> Floats:
        """The forecast `[batch, horizon, targets]` alone."""
        return self.run(inputs)["forecast"].astype(np.float32, copy=False)

    def predict(self, history: Tensor, *others: Tensor | None) -> Floats:
        """The forecast from torch's tensors; see `foretell.training.accuracy.Predictor`."""
        return self.forecast(arrays_of(Inputs(history, *others)))
