"""The operators a graph may have, by the device that may serve it.

An operator without a kernel on CUDA would run on the CPU, with copies in between, and rule out CUDA
graphs. Kernels are bound to versions of an operator and to types, so the list holds what the graphs
use, each looked up in the kernels that onnxruntime 1.31 registers for opset 23
(docs/OperatorKernels.md in its repository).

No cuDNN is needed. Where the axes decide that, they are looked at: CUDA takes the mean over the
first or the last axes by itself, and leaves one over an inner axis to cuDNN, like every minimum and
maximum (`export/rewrites/reductions.py` has what to take instead).

Shapes are not computed with: onnxruntime would do that on the CPU. So `Concat`, say, takes no
integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from foretell.export.errors import ExportError
from foretell.export.twin import TensorTypes, half_precision, tensor_types

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
    "ReduceSum": _FLOAT32,
    "Relu": _OR_HALF,
    "Reshape": _OR_HALF,
    "ScatterElements": _FLOAT32,
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
    types = tensor_types(graph)
    used = {_kernel(node, types) for node in graph.graph.node}
    constants = {weight.name: weight for weight in graph.graph.initializer}
    inner = any(_is_inner_mean(node, types, constants) for node in graph.graph.node)
    devices: tuple[Device, ...] = ("cuda", "cpu")
    if half_precision(graph) == "bfloat16":
        devices = ("cuda",)
    for device in devices:
        kernels = KERNELS[device]
        missing = [
            f"{name} of {TensorProto.DataType.Name(kind)}"
            for name, kind in sorted(used)
            if kind not in kernels.get(name, frozenset())
        ]
        if inner and device == "cuda":
            missing.append("ReduceMean over an inner axis")
        if missing:
            raise ExportError(
                f"the graph has operators without a kernel on {device}: {', '.join(missing)}"
            )


def _kernel(node: NodeProto, types: TensorTypes) -> tuple[str, int]:
    """What a kernel is looked up by: the operator, and the element type that decides.

    That is undefined where neither torch nor onnx could tell it.
    """
    decides = types.get((*node.input, *node.output)[0])
    return node.op_type, TensorProto.UNDEFINED if decides is None else decides.elem_type


def _is_inner_mean(
    node: NodeProto, types: TensorTypes, constants: Mapping[str, TensorProto]
) -> bool:
    """Whether a node takes the mean over axes that are neither the first nor the last ones."""
    if node.op_type != "ReduceMean":
        return False
    if len(node.input) < 2:
        return False
    kind, axes = types.get(node.input[0]), constants.get(node.input[1])
    if axes is None or kind is None or not kind.shape.dim:
        # Nobody knows before it runs.
        return True
    rank = len(kind.shape.dim)
    over = sorted(int(axis) % rank for axis in numpy_helper.to_array(axes))
    count = len(over)
    return over not in ([*range(count)], [*range(rank - count, rank)])
