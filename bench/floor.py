"""How fast the machine multiplies matrices, and what that makes the least time of a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.utils.flop_counter import FlopCounterMode

from bench.sizes import Size
from bench.timing import Call
from foretell.export.rewrites import inference_form
from foretell.service.engine.runtime import Runtime

_ROWS, _INNER, _COLUMNS = 2048, 512, 512


# Of a call of it, floating-point operations.
PRODUCT_FLOPS = 2 * _ROWS * _INNER * _COLUMNS


def large_product(runtime: Runtime, folder: Path) -> Call:
    """One large matrix product in onnxruntime."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(_INNER, _COLUMNS)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "gemm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [_ROWS, _INNER])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, _COLUMNS])],
        [numpy_helper.from_array(weight, "weight")],
    )
    path = folder / "gemm.onnx"
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    session = runtime.open(path)
    feeds = {"x": random.normal(size=(_ROWS, _INNER)).astype(np.float32)}
    return lambda: session.run(feeds)


def flops(size: Size) -> float:
    """Floating-point operations of all matrix products of one window.

    Those of the plain model or of our form, whichever has fewer: ours multiplies more where that
    takes less time.
    """
    model = size.model()
    counts = []
    # Of the plain model what explains: its fused attention is unknown to the counter.
    for call in (model.explain, inference_form(model)):
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            call(*size.inputs(1))
        counts.append(float(counter.get_total_flops()))
    return min(counts)
