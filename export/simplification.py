"""A traced graph with fewer nodes, by the passes of onnxscript's optimizer.

That has a rule more, which looks at all nodes for each of them, and never found what it looks for:
of a decoder with thousands of nodes it took most of the time.
"""

from __future__ import annotations

from onnxscript import ir
from onnxscript.optimizer import fold_constants, inline
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules import common as rules

_RULES = (
    rules.add_0_rule,
    rules.sub_0_rule,
    rules.mul_by_1_rule,
    rules.div_by_1_rule,
    rules.dropout_zero_rule,
    rules.dropout_inference_rule,
    rules.one_reshape_matmul_reshape_rule,
    rules.two_reshapes_matmul_reshape_rule,
    rules.cast_constant_of_shape_rule,
    rules.cast_constant_of_shape_without_value_rule,
    rules.collapse_slice_rule,
    rules.collapse_slice2_rule,
    rules.materialize_reshape_shape_rule,
    rules.min_min_rule,
    rules.max_max_rule,
    rules.min_max_rule,
    rules.max_min_rule,
    rules.successive_relu_rule,
    rules.successive_relu_clip_rule,
    rules.successive_clip_relu_rule,
    rules.successive_clip_rule,
    rules.cast_cast_rule,
    rules.no_op_cast_rule,
    rules.no_op_expand_rule,
    rules.flatten_to_reshape_rule,
    rules.reshape_reshape_rule,
    rules.no_op_transpose_rule,
    rules.transpose_transpose_rule,
    rules.unsqueeze_unsqueeze_rule,
    rules.squeeze_reshape_1d_rule,
)


def simplify(model: ir.Model) -> None:
    """Fold constants, merge what is equal and drop what nothing reads; changes the model."""
    passes = ir.passes.common
    inline(model)
    for _ in range(2):
        fold_constants(model)
        RewritePass(_RULES)(model)
        passes.RemoveUnusedNodesPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.DeduplicateInitializersPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.OutputFixPass()(model)
    passes.NameFixPass()(model)
