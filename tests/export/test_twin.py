import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto

from foretell.bundle.layout import FORECAST_GRAPH
from foretell.bundle.manifest import Scaler
from foretell.export.graphs import trace
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.export.twin import float32_twin, half_precision
from tests.checkpoints import CONFIGS, randomised

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
KINDS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
SCALER = Scaler(mean=(0.0,) * 3, std=(1.0,) * 3)


def product(precision: str, weight: np.ndarray) -> onnx.ModelProto:
    """`x` in float32, rounded, times a weight in half precision, then in float32 again."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]>
        product (float[rows, 8] x) => (float[rows, 4] y) {{
            half = Cast <to={KINDS[precision]}> (x)
            multiplied = MatMul (half, weight)
            y = Cast <to={TensorProto.FLOAT}> (multiplied)
        }}"""
    )
    stored = onnx.numpy_helper.from_array(weight.astype(NUMPY[precision]), "weight")
    model.graph.initializer.append(stored)
    return model


@pytest.mark.parametrize("precision", NUMPY)
def test_operands_and_results_are_rounded_and_sums_are_not(precision):
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(5, 8)).astype(np.float32), random.normal(size=(8, 4))
    graph = product(precision, weight)
    assert half_precision(graph) == precision

    def rounded(values):
        return values.astype(NUMPY[precision]).astype(np.float32)

    twin = float32_twin(graph)
    assert half_precision(twin) is None
    session = onnxruntime.InferenceSession(
        twin.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": x})
    sums = rounded(x).astype(np.float64) @ rounded(weight).astype(np.float64)
    np.testing.assert_array_equal(found, rounded(sums))
    assert not np.array_equal(found, sums.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("autoformer", "float16"),
        ("patchtst", "float16"),
        ("patchtst", "bfloat16"),
        ("transformer", "bfloat16"),
    ],
)
def test_is_as_far_from_float32_as_torch_in_half_precision(name, precision):
    form = inference_form(randomised(CONFIGS[name]))
    torch.manual_seed(0)
    inputs = [
        torch.randn(part.shape) for part in ServingForm(form, SCALER, "forecast").example_inputs(4)
    ]
    with torch.no_grad():
        exact = form(*inputs)
        reduce_precision(form, precision)
        serving = ServingForm(form, SCALER, "forecast").eval()
        reduced = form(*inputs)
    twin = float32_twin(trace(serving))
    session = onnxruntime.InferenceSession(
        twin.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: part.numpy() for name, part in zip(serving.input_names, inputs, strict=True)}
    found = torch.from_numpy(session.run(["forecast"], feeds)[0])
    usual = (reduced - exact).abs().max()
    assert 0 < (found - exact).abs().max() < 3 * usual
    assert (found - reduced).abs().max() < usual


def test_a_graph_in_float32_has_no_half_precision(bundles):
    assert half_precision(onnx.load(bundles["patchtst"] / FORECAST_GRAPH)) is None
