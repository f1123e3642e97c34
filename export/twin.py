"""A graph in half precision as a CPU can run it: results are rounded, sums are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
    shape_inference,
)

from foretell.bundle.results import Precision

TensorTypes = dict[str, TypeProto.Tensor]

_HALVES: dict[int, Precision] = {
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}


def half_precision(graph: onnx.ModelProto) -> Precision | None:
    """The half precision of some of a graph's weights, or None."""
    types = (weight.data_type for weight in graph.graph.initializer)
    return next((_HALVES[kind] for kind in types if kind in _HALVES), None)


def float32_twin(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Copy of a graph in float32 that rounds each result of half precision.

    A GPU's matrix units do the same: they multiply numbers of half precision exactly and add in
    float32. The CPU's kernels are float32, or missing.

    Args:
        graph: Graph with its weights loaded.
    """
    types = {name: found.elem_type for name, found in tensor_types(graph).items()}
    twin = onnx.ModelProto()
    twin.CopyFrom(graph)
    twin.graph.ClearField("node")
    twin.graph.ClearField("value_info")
    for weight in twin.graph.initializer:
        if weight.data_type in _HALVES:
            weight.CopyFrom(_widened(weight))
    for node in graph.graph.node:
        twin.graph.node.extend(_rounded(node, types))
    return twin


def tensor_types(graph: onnx.ModelProto) -> TensorTypes:
    """Element type and shape of each value by name, as far as they can be inferred."""
    inferred = shape_inference.infer_shapes(graph, strict_mode=True).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    types = {value.name: value.type.tensor_type for value in values}
    return types | {
        weight.name: helper.make_tensor_type_proto(weight.data_type, weight.dims).tensor_type
        for weight in inferred.initializer
    }


def _rounded(node: NodeProto, types: dict[str, int]) -> Iterator[NodeProto]:
    """A node with float32 in and out, and the rounding of results in half precision."""
    own = NodeProto()
    own.CopyFrom(node)
    for attribute in own.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in _HALVES:
            attribute.t.CopyFrom(_widened(attribute.t))
        if node.op_type == "Cast" and attribute.i in _HALVES:
            attribute.i = TensorProto.FLOAT
    roundings = []
    for place, name in enumerate(node.output):
        if types.get(name) in _HALVES:
            exact, half = f"{name}.exact", f"{name}.half"
            own.output[place] = exact
            roundings.append(helper.make_node("Cast", [exact], [half], to=types[name]))
            roundings.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
    yield own
    yield from roundings


def _widened(tensor: TensorProto) -> TensorProto:
    values = numpy_helper.to_array(tensor).astype(np.float32)
    return numpy_helper.from_array(values, tensor.name)
