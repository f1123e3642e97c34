import gc
import importlib
import logging
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from onnxscript.rewriter.rules import common
from torch import Tensor, nn

from foretell.bundle import layout
from foretell.bundle.scaler import Scaler
from foretell.export import simplification
from foretell.export.data_windows import synthetic
from foretell.export.errors import ExportError
from foretell.export.external_data import share_weights
from foretell.export.graphs import trace
from foretell.export.operators import without_kernel
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.export.simplification import simplify
from foretell.models.checkpoint import load_info
from tests.checkpoints import CONFIGS, randomised

SCALER = Scaler(mean=(0.0,) * 3, std=(1.0,) * 3)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("file", [layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH])
def test_interface(bundles, name, file):
    graph = onnx.load(bundles[name] / file, load_external_data=False).graph
    history = graph.input[0].type.tensor_type.shape.dim
    assert [axis.dim_param or axis.dim_value for axis in history] == ["batch", 48, 3]
    assert len(graph.input) == (1 if name == "patchtst" else 3)


@pytest.mark.parametrize("name", CONFIGS)
def test_graph_has_no_source_paths(bundles, name):
    for file in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH):
        content = (bundles[name] / file).read_bytes()
        assert b"site-packages" not in content
        assert b".py" not in content


def test_model_that_always_explains_is_traced_once(bundles):
    forecast, explain = (
        onnx.load(bundles["autoformer"] / file, load_external_data=False).graph
        for file in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH)
    )
    assert [output.name for output in forecast.output] == ["forecast", "margin"]
    nodes = [node.SerializeToString() for node in explain.node]
    assert [node for node in nodes if node in {n.SerializeToString() for n in forecast.node}] == [
        node.SerializeToString() for node in forecast.node
    ]
    assert len(forecast.node) < len(nodes)


def test_a_plain_model_is_traced_too():
    # Not its inference form: it has convolutions.
    graph = trace(ServingForm(randomised(CONFIGS["transformer"]), SCALER, "forecast"))
    assert "Conv of FLOAT" in without_kernel(graph)


@pytest.mark.parametrize(("before", "during"), [(700, 50_000), (0, 0), (90_000, 90_000)])
def test_garbage_collection_is_rare_during_tracing(before, during):
    """Collection that is off stays off, and a higher threshold is kept."""
    seen, outside = [], gc.get_threshold()

    class Watched(ServingForm):
        def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            seen.append(gc.get_threshold()[0])
            raise ValueError("seen")

    try:
        gc.set_threshold(before, 10, 10)
        with pytest.raises(ExportError, match="torch cannot trace it: seen"):
            trace(Watched(randomised(CONFIGS["patchtst"]), SCALER, "forecast"))
        assert (seen[0], gc.get_threshold()) == (during, (before, 10, 10))
    finally:
        gc.set_threshold(*outside)


class Specialised(ServingForm):
    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (given[0][:2, :12].clone(),)


class ReadsDoubles(ServingForm):
    def example_inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        return tuple(part.double() for part in super().example_inputs(batch))

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (given[0][:, :12].float(),)


class GivesDoubles(ServingForm):
    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (given[0][:, :12].double(),)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Specialised, "first axis is not the batch"),
        (ReadsDoubles, r"inputs are \{'history': \('DOUBLE', "),
        (GivesDoubles, "output forecast: its type is DOUBLE, expected FLOAT"),
    ],
)
def test_another_interface_is_refused(kind, message):
    with pytest.raises(ExportError, match=message):
        trace(kind(randomised(CONFIGS["patchtst"]), SCALER, "forecast"))


def summed(*weights: np.ndarray) -> onnx.ModelProto:
    names = [f"w{i}" for i in range(len(weights))]
    nodes = []
    previous = "x"
    for name in names:
        nodes.append(helper.make_node("Add", [previous, name], [f"{name}_out"]))
        previous = f"{name}_out"
    shape = list(weights[0].shape)
    return helper.make_model(
        helper.make_graph(
            nodes,
            "sum",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(previous, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(w, n) for n, w in zip(names, weights, strict=True)],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )


def test_equal_tensors_are_stored_once_and_both_graphs_run(tmp_path):
    random = np.random.default_rng(0)
    shared, own = random.normal(size=(2, 40, 40)).astype(np.float32)
    graphs = {"a.onnx": summed(shared, own), "b.onnx": summed(own, shared, shared)}
    share_weights(graphs.values(), tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").stat().st_size < 2 * shared.nbytes + 4096
    x = np.zeros((40, 40), np.float32)
    for name, proto in graphs.items():
        onnx.save(proto, tmp_path / name)
        assert (tmp_path / name).stat().st_size < shared.nbytes
        session = onnxruntime.InferenceSession(
            str(tmp_path / name), providers=["CPUExecutionProvider"]
        )
        expected = shared + own if name == "a.onnx" else own + shared + shared
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6)


def test_small_tensors_stay_in_the_graph(tmp_path):
    proto = summed(np.ones((4, 4), np.float32))
    share_weights([proto], tmp_path / "weights.bin")
    assert proto.graph.initializer[0].raw_data
    assert (tmp_path / "weights.bin").stat().st_size == 0


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        share_weights([summed(np.ones((4, 4), np.float32))], tmp_path / "weights.bin")


def test_outputs_by_name(bundles, checkpoints):
    info = load_info(checkpoints["autoformer"])
    inputs = synthetic(info, 3, seed=0).inputs
    explain = Graph(bundles["autoformer"] / layout.EXPLAIN_GRAPH)
    outputs = explain.run(inputs)
    assert list(outputs) == explain.outputs
    assert explain.outputs[0] == "forecast"
    assert outputs["encoder.0.self.lags"].dtype == np.int64
    np.testing.assert_array_equal(explain.forecast(inputs), outputs["forecast"])


def test_graph_without_a_calendar_has_no_input_for_it(bundles, checkpoints):
    windows = synthetic(load_info(checkpoints["patchtst"]), 3, seed=0)
    assert windows.inputs.keys() == {"history"}
    forecast = Graph(bundles["patchtst"] / layout.FORECAST_GRAPH).forecast(windows.inputs)
    assert forecast.shape == (3, 12, 3)


class Roundabout(nn.Module):
    """Computes with many operators what a few can do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, values: Tensor) -> Tensor:
        part = (values * 1 + 0)[:, 1:][:, :3]
        again = part.reshape(-1, 3, 1).reshape(-1, 3)
        return again.exp() @ (2 * self.weight) + again.exp()


@pytest.mark.filterwarnings("ignore")
def test_graph_has_no_nodes_that_onnxscript_removes() -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)

    def traced() -> ir.Model:
        program = torch.onnx.export(
            Roundabout().eval(),
            (torch.ones(2, 5),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            optimize=False,
            verbose=False,
        )
        assert program is not None
        return program.model

    ours, theirs = traced(), traced()
    simplify(ours)
    optimize_ir(theirs)
    found, wanted = (Counter(node.op_type for node in model.graph) for model in (ours, theirs))
    assert found == wanted
    assert (found["Exp"], found["Add"], found["Mul"], found["Reshape"]) == (1, 1, 0, 1)


def test_rule_that_onnxscript_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(common, "add_0_rule")
    monkeypatch.delattr(common, "transpose_transpose_rule")
    try:
        reloaded = importlib.reload(simplification)
        assert len(reloaded._RULES) == len(reloaded._NAMES) - 2
    finally:
        monkeypatch.undo()
        importlib.reload(simplification)
