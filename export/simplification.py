"""Reduce the nodes of a traced graph by passes of onnxscript's optimizer.

One of its rules is left out. It compares each node with all others and never matched; for a decoder
with thousands of nodes it took most of the time.
"""

from __future__ import annotations

from onnxscript import ir
from onnxscript.optimizer import fold_constants, inline
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules import common as rules

from foretell.export.lowerings import broadcast

# A version of onnxscript that lacks one of these only leaves more nodes.
_NAMES = (
    "add_0",
    "sub_0",
    "mul_by_1",
    "div_by_1",
    "dropout_zero",
    "dropout_inference",
    "one_reshape_matmul_reshape",
    "two_reshapes_matmul_reshape",
    "cast_constant_of_shape",
    "cast_constant_of_shape_without_value",
    "collapse_slice",
    "collapse_slice2",
    "materialize_reshape_shape",
    "min_min",
    "max_max",
    "min_max",
    "max_min",
    "successive_relu",
    "successive_relu_clip",
    "successive_clip_relu",
    "successive_clip",
    "cast_cast",
    "no_op_cast",
    "no_op_expand",
    "flatten_to_reshape",
    "reshape_reshape",
    "no_op_transpose",
    "transpose_transpose",
    "unsqueeze_unsqueeze",
    "squeeze_reshape_1d",
)
_RULES = [rule for name in _NAMES if (rule := getattr(rules, f"{name}_rule", None)) is not None]


def simplify(model: ir.Model) -> None:
    """Fold constants, merge equal nodes and drop unused ones; changes the model."""
    passes = ir.passes.common
    inline(model)
    for _ in range(2):
        fold_constants(model)
        RewritePass(_RULES)(model)
        broadcast(model)
        passes.RemoveUnusedNodesPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.DeduplicateInitializersPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.OutputFixPass()(model)
    passes.NameFixPass()(model)
