"""The operators a graph may have, by the device that may serve it.

An operator without a kernel on CUDA would run on the CPU, with copies in between, and rule out CUDA
graphs. Kernels are bound to versions of an operator and to types, so the list holds what the graphs
use, each looked up in the kernels that onnxruntime 1.31 registers for opset 23
(docs/OperatorKernels.md in its repository). No operator in it needs cuDNN.

Shapes are not computed with: onnxruntime would do that on the CPU. So `Concat`, say, takes no
integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import onnx
from onnx import TensorProto

from export.errors import ExportError
from export.twin import element_types, half_precision

Device = Literal["cuda", "cpu"]
Types = frozenset[int]

_FLOAT32: Types = frozenset({TensorProto.FLOAT})
_OR_INDEX: Types = _FLOAT32 | {TensorProto.INT64}
_OR_HALF: Types = _FLOAT32 | {TensorProto.FLOAT16, TensorProto.BFLOAT16}

_CUDA: Mapping[str, Types] = {
    "Add": _OR_HALF,
    "Cast": _OR_HALF,
    "Clip": _FLOAT32,
    "Concat": _FLOAT32,
    "Div": _FLOAT32,
    "Exp": _FLOAT32,
    "Expand": _FLOAT32,
    "Gather": _OR_INDEX,
    "Gelu": _OR_HALF,
    "Gemm": _OR_HALF,
    "LayerNormalization": _FLOAT32,
    "MatMul": _OR_HALF,
    "Mul": _FLOAT32,
    "Pad": _FLOAT32,
    "Reciprocal": _FLOAT32,
    "ReduceMean": _FLOAT32,
    "ReduceMin": _FLOAT32,
    "ReduceSum": _FLOAT32,
    "Relu": _OR_HALF,
    "Reshape": _OR_HALF,
    "ScatterElements": _FLOAT32,
    "Shape": _FLOAT32,
    "Slice": _OR_INDEX,
    "Softmax": _OR_HALF,
    "Sqrt": _FLOAT32,
    "Sub": _FLOAT32,
    "TopK": _FLOAT32,
    "Transpose": _OR_HALF,
    "Unsqueeze": _FLOAT32,
}
# The element types, by operator, that its first input may have; without inputs, its output.
KERNELS: Mapping[Device, Mapping[str, Types]] = {
    "cuda": _CUDA,
    # The CPU runs float16 in float32, and lacks bfloat16.
    "cpu": {name: types - {TensorProto.BFLOAT16} for name, types in _CUDA.items()},
}


def check_operators(graph: onnx.ModelProto) -> None:
    """Make sure that every device the graph is for has all the kernels.

    Raises:
        ExportError: it names the operators that have none.
    """
    types = element_types(graph)
    used = {(node.op_type, types[(*node.input, *node.output)[0]]) for node in graph.graph.node}
    devices: tuple[Device, ...] = ("cuda", "cpu")
    if half_precision(graph) == "bfloat16":
        devices = ("cuda",)
    for device in devices:
        kernels = KERNELS[device]
        missing = sorted(
            f"{name} of {TensorProto.DataType.Name(kind)}"
            for name, kind in used
            if kind not in kernels.get(name, frozenset())
        )
        if missing:
            raise ExportError(
                f"the graph has operators without a kernel on {device}: {', '.join(missing)}"
            )
