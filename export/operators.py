"""The operators that CUDA has kernels for, and so the devices that may serve a graph.

An operator without one would run on the CPU, with copies in between, and rule out CUDA graphs: such
a graph is for CPUs alone. Kernels are bound to versions of an operator and to types. So the list
holds the operators that graphs use, from the kernels that onnxruntime 1.31 registers for opset 23
(docs/OperatorKernels.md in its repository).

No cuDNN is needed. Where the axes decide that, they are checked: CUDA computes the mean over the
first or the last axes itself, and leaves a mean over an inner axis to cuDNN, like every minimum and
maximum (`export/lowerings.py` replaces these).

Graphs compute no shapes, which onnxruntime would do on the CPU. So `Concat`, for example, takes no
integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from foretell.bundle.manifest import Device
from foretell.export.errors import ExportError
from foretell.export.twin import TensorTypes, half_precision, tensor_types

Types = frozenset[int]

_FLOAT32: Types = frozenset({TensorProto.FLOAT})
_OR_INDEX: Types = _FLOAT32 | {TensorProto.INT64}
_OR_HALF: Types = _FLOAT32 | {TensorProto.FLOAT16, TensorProto.BFLOAT16}
_ALL: Types = _OR_HALF | _OR_INDEX
_CONDITION: Types = frozenset({TensorProto.BOOL})

# Element types, by operator, of its first input; of its output if it has no inputs.
CUDA_KERNELS: Mapping[str, Types] = {
    "Abs": _FLOAT32,
    "Add": _ALL,
    "Cast": _ALL,
    "Clip": _FLOAT32,
    "Concat": _FLOAT32,
    "Cos": _FLOAT32,
    "CumSum": _FLOAT32,
    "Div": _FLOAT32,
    "Equal": _FLOAT32,
    "Exp": _FLOAT32,
    "Expand": _OR_INDEX,
    "Gather": _OR_INDEX,
    "GatherElements": _FLOAT32,
    "Gelu": _OR_HALF,
    "Gemm": _OR_HALF,
    "Greater": _FLOAT32,
    "IsNaN": _FLOAT32,
    "LayerNormalization": _FLOAT32,
    "Less": _FLOAT32,
    "Log": _FLOAT32,
    "LogSoftmax": _FLOAT32,
    "MatMul": _OR_HALF,
    "Max": _FLOAT32,
    "Min": _FLOAT32,
    "Mul": _FLOAT32,
    "Neg": _FLOAT32,
    "Pad": _FLOAT32,
    "PRelu": _FLOAT32,
    "Pow": _FLOAT32,
    "Reciprocal": _FLOAT32,
    "ReduceMean": _FLOAT32,
    "ReduceSum": _FLOAT32,
    "Relu": _OR_HALF,
    "Reshape": _ALL,
    "ScatterElements": _FLOAT32,
    "Sigmoid": _FLOAT32,
    "Sign": _FLOAT32,
    "Sin": _FLOAT32,
    "Slice": _OR_INDEX,
    "Softmax": _OR_HALF,
    "Split": _FLOAT32,
    "Sqrt": _FLOAT32,
    "Sub": _FLOAT32,
    "TopK": _FLOAT32,
    "Transpose": _ALL,
    "Trilu": _FLOAT32,
    "Unsqueeze": _OR_INDEX,
    "Where": _CONDITION,
}


def without_kernel(graph: onnx.ModelProto) -> list[str]:
    """Operators, with their element types, that have no kernel on CUDA."""
    types = tensor_types(graph)
    constants = {weight.name: weight for weight in graph.graph.initializer}
    used = {_kernel(node, types) for node in graph.graph.node}
    missing = [
        f"{name} of {TensorProto.DataType.Name(kind)}"
        for name, kind in sorted(used)
        if kind not in CUDA_KERNELS.get(name, frozenset())
    ]
    if any(_is_inner_mean(node, types, constants) for node in graph.graph.node):
        missing.append("ReduceMean over an inner axis")
    return missing


def devices_of(graphs: Iterable[onnx.ModelProto]) -> tuple[Device, ...]:
    """The devices that have a kernel for every operator of some graphs.

    The CPU runs every graph that is verified there, and lacks bfloat16.

    Raises:
        ExportError: no device has all kernels; the message names the operators.
    """
    graphs = tuple(graphs)
    missing = sorted({name for graph in graphs for name in without_kernel(graph)})
    on_cpu = all(half_precision(graph) != "bfloat16" for graph in graphs)
    if missing and not on_cpu:
        raise ExportError(
            f"the graph has operators without a kernel on CUDA: {', '.join(missing)}; and the CPU "
            "has none for bfloat16"
        )
    devices: tuple[tuple[Device, bool], ...] = (("cuda", not missing), ("cpu", on_cpu))
    return tuple(device for device, fits in devices if fits)


def _kernel(node: NodeProto, types: TensorTypes) -> tuple[str, int]:
    """Key of a node's kernel: the operator, and the element type that decides."""
    decides = types.get((*node.input, *node.output)[0])
    return node.op_type, TensorProto.UNDEFINED if decides is None else decides.elem_type


def _is_inner_mean(
    node: NodeProto, types: TensorTypes, constants: Mapping[str, TensorProto]
) -> bool:
    """Whether a node takes the mean over axes that are neither the first nor the last ones."""
    if node.op_type != "ReduceMean" or len(node.input) < 2:
        return False
    kind, axes = types.get(node.input[0]), constants.get(node.input[1])
    if axes is None or kind is None or not kind.shape.dim:
        # Axes or rank are unknown before the graph runs.
        return True
    rank = len(kind.shape.dim)
    over = sorted(int(axis) % rank for axis in numpy_helper.to_array(axes))
    count = len(over)
    return over not in ([*range(count)], [*range(rank - count, rank)])
