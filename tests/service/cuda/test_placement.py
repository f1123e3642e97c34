from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import onnxruntime

from foretell.bundle import layout
from foretell.service.cuda.gpus import RECORD, elsewhere
from tests.service.cuda.fake import CPU, CUDA
from tests.support.bundles import Spec, write_bundle


def subgraph(provider: str, *operators: str) -> SimpleNamespace:
    nodes = [SimpleNamespace(name=f"node_{op}", op_type=op) for op in operators]
    return SimpleNamespace(ep_name=provider, get_nodes=lambda: nodes)


def session(*subgraphs: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(get_provider_graph_assignment_info=lambda: subgraphs)


def test_nodes_of_another_provider_are_named() -> None:
    placed = session(subgraph(CUDA, "MatMul"), subgraph(CPU, "DFT", "TopK"))
    assert elsewhere(placed, CUDA) == (["node_DFT (DFT)", "node_TopK (TopK)"], [])


def test_arithmetic_on_shapes_may_stay_on_the_host() -> None:
    placed = session(subgraph(CUDA, "Add", "Slice"), subgraph(CPU, "Shape", "DFT", "Concat"))
    on_shapes = ["node_Shape (Shape)", "node_Concat (Concat)"]
    assert elsewhere(placed, CUDA) == (["node_DFT (DFT)"], on_shapes)


def test_a_real_session_tells_where_its_nodes_are(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*RECORD)
    graph = write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH
    real = onnxruntime.InferenceSession(graph, options, providers=[CPU])
    assert elsewhere(real, CPU) == ([], [])
    assert elsewhere(real, CUDA)[0]
