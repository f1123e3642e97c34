"""Where onnxruntime put the nodes of a graph."""

from __future__ import annotations

from typing import Any

# Arithmetic on shapes, which onnxruntime keeps on the host on purpose; a CUDA graph, whose shapes
# are fixed, does without it.
_SHAPE_OPS = frozenset(
    {
        "Cast",
        "Concat",
        "ConstantOfShape",
        "Gather",
        "Shape",
        "Size",
        "Slice",
        "Squeeze",
        "Unsqueeze",
    }
)
# Asks onnxruntime to keep what `strays` reads.
RECORD = ("session.record_ep_graph_assignment_info", "1")


def strays(session: Any, provider: str) -> list[str]:  # noqa: ANN401 - onnxruntime is untyped
    """Nodes that another provider runs, beside arithmetic on shapes: `name (operator)`.

    Args:
        session: An `InferenceSession` that was opened with `RECORD`.
        provider: The one that should run them.
    """
    return [
        f"{node.name} ({node.op_type})"
        for subgraph in session.get_provider_graph_assignment_info()
        for node in subgraph.get_nodes()
        if subgraph.ep_name != provider and node.op_type not in _SHAPE_OPS
    ]
