import gc

import onnx
import pytest
import torch

from foretell.bundle import layout
from foretell.bundle.manifest import Scaler
from foretell.export.errors import ExportError
from foretell.export.graphs import trace
from foretell.export.operators import without_kernel
from foretell.export.serving_form import ServingForm
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
def test_no_trace_of_the_machine_that_exported(bundles, name):
    for file in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH):
        content = (bundles[name] / file).read_bytes()
        assert b"site-packages" not in content
        assert b".py" not in content


def test_what_always_explains_is_traced_once(bundles):
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


@pytest.mark.parametrize(("before", "meanwhile"), [(700, 50_000), (0, 0), (90_000, 90_000)])
def test_garbage_is_rarely_looked_for_while_a_model_is_traced(before, meanwhile):
    """Never by who has switched that off, and no more often by who does it less."""
    seen, outside = [], gc.get_threshold()

    class Watched(ServingForm):
        def forward(self, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
            seen.append(gc.get_threshold()[0])
            raise ValueError("seen")

    try:
        gc.set_threshold(before, 10, 10)
        with pytest.raises(ExportError, match="torch cannot trace it: seen"):
            trace(Watched(randomised(CONFIGS["patchtst"]), SCALER, "forecast"))
        assert (seen[0], gc.get_threshold()) == (meanwhile, (before, 10, 10))
    finally:
        gc.set_threshold(*outside)


def test_a_specialised_batch_is_refused():
    class Specialised(ServingForm):
        def forward(self, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (history[:2, :12].clone(),)

    form = Specialised(randomised(CONFIGS["patchtst"]), SCALER, "forecast")
    with pytest.raises(ExportError, match="first axis is not the batch"):
        trace(form)


def test_an_input_of_another_type_is_refused():
    class Double(ServingForm):
        def example_inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
            return tuple(part.double() for part in super().example_inputs(batch))

        def forward(self, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (history[:, :12].float(),)

    form = Double(randomised(CONFIGS["patchtst"]), SCALER, "forecast")
    with pytest.raises(ExportError, match=r"inputs are \{'history': \('DOUBLE', "):
        trace(form)


def test_an_output_of_another_type_is_refused():
    class Double(ServingForm):
        def forward(self, history: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (history[:, :12].double(),)

    form = Double(randomised(CONFIGS["patchtst"]), SCALER, "forecast")
    with pytest.raises(ExportError, match="output forecast: its type is DOUBLE, expected FLOAT"):
        trace(form)
