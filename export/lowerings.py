"""Replacements in graphs for operators of torch that CUDA would not run.

onnxruntime's CUDA provider lacks some operators, leaves minima, maxima and means over inner axes to
cuDNN, and computes shapes on the CPU. `export/operators.py` lists its kernels.
"""

# ruff: noqa: ANN401 - values of a trace, which onnxscript computes with

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log, prod
from typing import Any

import numpy as np
import torch
from onnxscript import ir
from onnxscript.onnx_opset import opset23

# Untyped: a trace takes values where a schema has types.
op: Any = opset23


def _largest(values: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    return _first(values, dim, keepdim, largest=1)


def _smallest(values: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    return _first(values, dim, keepdim, largest=0)


def _first(values: Any, dim: Sequence[int], keepdim: bool, *, largest: int) -> Any:
    """Reduce axis by axis from the last; a NaN is kept only if it comes first in its axis."""
    rank = len(values.shape)
    for axis in sorted((each % rank for each in dim or range(rank)), reverse=True):
        values, _ = op.TopK(values, _integers(1), axis=axis, largest=largest, sorted=1)
        if not keepdim:
            values = op.Gather(values, op.Constant(value_int=0), axis=axis)
    return values


def _sort(values: Any, dim: int = -1, descending: bool = False) -> Any:
    length = values.shape[dim]
    known = isinstance(length, int)
    count = _integers(length) if known else op.Gather(op.Shape(values), _integers(dim))
    return op.TopK(values, count, axis=dim, largest=int(descending), sorted=1)


def _mean(values: Any, dim: Sequence[int] | None, keepdim: bool = False, dtype: int = -1) -> Any:
    kind = values.dtype if dtype == -1 else ir.DataType(dtype)
    rank = len(values.shape)
    axes = sorted(axis % rank for axis in dim or range(rank))
    count = len(axes)
    lengths = [values.shape[axis] for axis in axes]
    outer = axes in ([*range(count)], [*range(rank - count, rank)])
    if dtype != -1:
        values = op.Cast(values, to=dtype)
    if outer or not all(isinstance(length, int) for length in lengths):
        return op.ReduceMean(values, _integers(*axes), keepdims=int(keepdim))
    total = op.ReduceSum(values, _integers(*axes), keepdims=int(keepdim))
    return op.Div(total, _number(prod(lengths), kind))


def _softplus(values: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Exact like torch's: the operator of ONNX loses the digits of small results."""
    kind = values.dtype
    scaled = values if beta == 1 else op.Mul(values, _number(beta, kind))
    found = op.Add(op.Relu(scaled), _log1p(op.Exp(op.Neg(op.Abs(scaled))), kind))
    found = found if beta == 1 else op.Div(found, _number(beta, kind))
    # Beyond 20 both forms are equal in float32.
    if threshold >= 20:
        return found
    return op.Where(op.Greater(scaled, _number(threshold, kind)), values, found)


def _asinh(values: Any) -> Any:
    """By `log1p`, which keeps the digits of small values; large squares would overflow."""
    kind = values.dtype
    size, one = op.Abs(values), _number(1, kind)
    # Above this value the result equals log(2x) in this precision.
    large = _number(kind.eps**-0.5, kind)
    small = op.Min(size, large)
    square = op.Mul(small, small)
    root = op.Sqrt(op.Add(square, one))
    found = _log1p(op.Add(small, op.Div(square, op.Add(root, one))), kind)
    return op.Mul(op.Sign(values), op.Add(found, op.Log(op.Div(op.Max(size, large), large))))


def _sinh(values: Any) -> Any:
    """By `1 - exp(-x/2)` (Kahan's `expm1`), which keeps its digits and does not overflow early."""
    kind = values.dtype
    one, half = _number(1, kind), _number(0.5, kind)
    # Twice this value overflows.
    size = op.Min(op.Mul(op.Abs(values), half), _number(0.6 * log(kind.max), kind))
    falling = op.Min(op.Exp(op.Neg(size)), _number(1 - kind.eps / 2, kind))
    below = op.Mul(size, op.Div(op.Sub(falling, one), op.Log(falling)))
    above = op.Div(below, falling)
    cosine = op.Add(one, op.Mul(half, op.Mul(above, below)))
    return op.Mul(op.Sign(values), op.Mul(op.Add(above, below), cosine))


def _log1p(values: Any, kind: ir.DataType) -> Any:
    """`log(1 + values)` of values that are not negative.

    Adding 1 to a small number loses its digits; a quotient of terms with the same sum keeps them
    (Kahan).
    """
    one = _number(1, kind)
    total = op.Add(one, op.Max(values, _number(float(kind.eps), kind)))
    return op.Mul(values, op.Div(op.Log(total), op.Sub(total, one)))


_ATEN = torch.ops.aten
# Replacements of the operators that torch traces, for its exporter.
LOWERINGS: dict[Callable[..., Any], Callable[..., Any]] = {
    _ATEN.amax.default: _largest,
    _ATEN.amin.default: _smallest,
    _ATEN.sort.default: _sort,
    _ATEN.mean.dim: _mean,
    _ATEN.softplus.default: _softplus,
    _ATEN.asinh.default: _asinh,
    _ATEN.sinh.default: _sinh,
}


def _integers(*values: int) -> Any:
    return op.Constant(value_ints=[*values])


def _number(value: float, kind: ir.DataType) -> Any:
    return op.Constant(value=ir.tensor(np.array(value, kind.numpy())))


def broadcast(model: ir.Model) -> None:
    """Broadcast tensors without arithmetic of shapes; changes the model.

    An axis keeps its length where the shape has a 1. An axis that becomes as long as that of
    another tensor, such as the batch, is broadcast by adding zeros made from the other tensor.

    Args:
        model: Traced model with the shapes that torch knows, and with constants folded.
    """
    for node in list(model.graph):
        if node.op_type == "Expand" and (shape := node.inputs[1]) and shape.const_value is None:
            _expand(model.graph, node)


def _expand(graph: ir.Graph, node: ir.Node) -> None:
    given, expanded = node.inputs[0], node.outputs[0]
    if given is None or given.shape is None or expanded.shape is None:
        return
    wanted = expanded.shape.dims
    if any(isinstance(length, ir.SymbolicDim) and length.value is None for length in wanted):
        return
    own = (1,) * (len(wanted) - len(given.shape)) + given.shape.dims
    of_others = [
        axis
        for axis, (length, mine) in enumerate(zip(wanted, own, strict=True))
        if not isinstance(length, int) and length != mine
    ]
    other = next(_of_length(graph, node, wanted[0]), None) if of_others == [0] else None
    if of_others and (other is None or given.dtype is ir.DataType.BOOL):
        return
    tape = _Tape(node)
    result = given
    lengths = [length if isinstance(length, int) else 1 for length in wanted]
    if any(length not in (1, mine) for length, mine in zip(lengths, own, strict=True)):
        result = tape.op("Expand", [result, tape.constant(np.array(lengths))])
    if other is not None:
        result = tape.op("Add", [result, _zeros(tape, other, len(wanted), given)])
    if result is given:
        result = tape.op("Identity", [given])
    result.shape, result.type = expanded.shape, expanded.type
    graph.insert_before(node, tape.nodes)
    for made in tape.initializers:
        graph.register_initializer(made)
    ir.convenience.replace_all_uses_with(expanded, result, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    # It may be an output of the graph.
    result.name = expanded.name


class _Tape(ir.tape.Tape):
    """New nodes and constants, named after the node that they replace."""

    def __init__(self, node: ir.Node) -> None:
        super().__init__()
        self._name = node.outputs[0].name

    def constant(self, values: np.ndarray) -> ir.Value:
        name = f"{self._name}_{len(self.initializers)}"
        return self.initializer(ir.tensor(values), name=name)


def _of_length(graph: ir.Graph, node: ir.Node, length: object) -> Iterator[ir.Value]:
    """Float tensors, computed before a node, whose first axis has this length."""
    for value in (*graph.inputs, *(value for other in graph for value in other.outputs)):
        if value in node.outputs:
            return
        if value.dtype is ir.DataType.FLOAT and value.shape and value.shape[0] == length:
            yield value


def _zeros(tape: _Tape, other: ir.Value, rank: int, like: ir.Value) -> ir.Value:
    """Zeros `[length, 1, …]` from a tensor that may hold values that are not finite."""
    assert other.shape is not None  # noqa: S101 - it has a first axis
    assert like.dtype is not None  # noqa: S101 - torch knows it
    inner = np.arange(1, len(other.shape))
    if len(inner):
        bounds = (tape.constant(np.full(len(inner), bound)) for bound in (0, 1))
        other = tape.op("Slice", [other, *bounds, tape.constant(inner)])
    other = tape.op("Reshape", [other, tape.constant(np.array([-1] + [1] * (rank - 1)))])
    zero = tape.constant(np.zeros((), like.dtype.numpy()))
    return tape.op("Where", [tape.op("IsNaN", [other]), zero, zero])
