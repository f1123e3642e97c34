"""The session of every script here: the graph of `torch.onnx.export`, one thread a run."""

from __future__ import annotations

import onnxruntime


def open_session(graph: str) -> onnxruntime.InferenceSession:
    """Open a graph on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
