"""One weights file for both graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import set_external_data

# Small tensors stay in the graph, where shape inference and constant folding can see them.
_SMALLEST = 1024
# onnxruntime maps the file to memory; a page is the alignment that suits every platform.
_PAGE = 4096


def share_weights(graphs: Iterable[onnx.ModelProto], path: Path) -> None:
    """Move the large tensors of all graphs to one file; equal tensors are stored once.

    Args:
        graphs: Graphs, which are changed in place.
        path: The file to write; the graphs must be saved to the same folder.
    """
    places: dict[bytes, int] = {}
    with path.open("xb") as file:
        for graph in graphs:
            for tensor in _tensors(graph):
                raw = numpy_helper.to_array(tensor).tobytes()
                if len(raw) < _SMALLEST:
                    continue
                digest = hashlib.sha256(raw).digest()
                if digest not in places:
                    file.write(b"\0" * (-file.tell() % _PAGE))
                    places[digest] = file.tell()
                    file.write(raw)
                tensor.raw_data = raw
                set_external_data(tensor, path.name, places[digest], len(raw))
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL


def _tensors(graph: onnx.ModelProto) -> Iterable[TensorProto]:
    yield from graph.graph.initializer
    for node in graph.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield attribute.t
