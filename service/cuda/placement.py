"""Where onnxruntime put the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator
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
    return [_named(node) for node in _elsewhere(session, provider) if not _is_allowed(node)]


def shape_arithmetic(session: Any, provider: str) -> list[str]:  # noqa: ANN401
    """As `strays`, the nodes that these leave out."""
    return [_named(node) for node in _elsewhere(session, provider) if _is_allowed(node)]


def _elsewhere(session: Any, provider: str) -> Iterator[Any]:  # noqa: ANN401
    for subgraph in session.get_provider_graph_assignment_info():
        if subgraph.ep_name != provider:
            yield from subgraph.get_nodes()


def _is_allowed(node: Any) -> bool:  # noqa: ANN401
    return node.op_type in _SHAPE_OPS


def _named(node: Any) -> str:  # noqa: ANN401
    return f"{node.name} ({node.op_type})"
