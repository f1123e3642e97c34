"""Which operators a graph spends its time in."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

_RUNS = 10
_GROUPS = {
    "matrix products": {"MatMul", "FusedMatMul", "Gemm", "Attention"},
    "softmax": {"Softmax", "Exp", "ReduceSum", "Reciprocal"},
    "activation": {"Gelu", "BiasGelu", "Relu"},
    "norms": {"LayerNormalization", "ReduceMean"},
    "copies": {"Transpose", "Reshape", "Gather", "Slice", "Concat", "Pad", "Expand", "Split"},
}
_REST = "other"


def shares(graph: Path, feeds: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Share of the time by group of operators, largest first; they add up to 1."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_profiling = True
    options.profile_file_prefix = str(graph.with_suffix(""))
    session = onnxruntime.InferenceSession(
        graph,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )
    for _ in range(_RUNS):
        session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[_group(event["args"]["op_name"])] += event["dur"]
    total = sum(spent.values())
    return dict(sorted(((k, v / total) for k, v in spent.items()), key=lambda item: -item[1]))


def _group(operator: str) -> str:
    return next((name for name, operators in _GROUPS.items() if operator in operators), _REST)
