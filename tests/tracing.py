"""Traces of small models that take less time, and give the same graphs."""

from __future__ import annotations

from functools import cache

from torch.onnx._internal.exporter._registration import ONNXRegistry


def trace_cheaply() -> None:
    """Make later traces of this process cheaper."""
    # torch reads all of onnxscript's functions anew for each trace; ours adds none to them.
    ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))  # type: ignore[method-assign, assignment]
