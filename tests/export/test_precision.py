import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto
from torch import nn

from foretell.bundle.layout import FORECAST_GRAPH
from foretell.bundle.scaler import Scaler
from foretell.export.errors import ExportError
from foretell.export.graphs import trace
from foretell.export.precision import DTYPES, Reduced, reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.export.serving_form import ServingForm
from foretell.export.twin import float32_twin, half_precision
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attention.evidence import Sparse
from foretell.models.layers.feed_forward import FeedForward
from tests.checkpoints import CONFIGS, SMALL, randomised
from tests.export.rewrites.test_inference_form import inputs

HALVES = ("float16", "bfloat16")
ATTENTIONS = (TimeFirstAttention, MergedAttention)


def reduced(config, precision):
    form = inference_form(randomised(config))
    reduce_precision(form, precision)
    return form


def names(form, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> set[str]:
    """Paths of the reduced modules of a type."""
    return {
        name
        for name, module in form.named_modules()
        if isinstance(module, Reduced) and isinstance(module.module, kind)
    }


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", CONFIGS)
def test_differs_by_a_few_roundings(name, precision):
    config = CONFIGS[name]
    given = [part if part is None else part.float() for part in inputs(config)]
    with torch.inference_mode():
        expected = inference_form(randomised(config)).explain(*given)
        found = reduced(config, precision).explain(*given)
    error = (found.forecast - expected.forecast).abs().max() / expected.forecast.abs().max()
    assert 0 < error < 2 * torch.finfo(DTYPES[precision]).eps
    assert found.forecast.dtype == torch.float32
    for attention in found.attention.values():
        types = {part.dtype for part in attention if part is not None}
        assert types <= {torch.float32, torch.int64}


@pytest.mark.parametrize("precision", HALVES)
def test_weights_are_stored_in_half_precision(precision):
    form = reduced(CONFIGS["autoformer"], precision)
    halved = {name for name, w in form.state_dict().items() if w.dtype == DTYPES[precision]}
    assert halved == {name for name in form.state_dict() if ".module." in name}
    assert any("feed_forward" in name for name in halved)
    assert any("self_attention.value" in name for name in halved)


def test_float32_changes_nothing():
    form = reduced(CONFIGS["transformer"], "float32")
    assert not names(form, nn.Module)


@pytest.mark.parametrize("precision", HALVES)
def test_a_model_with_nothing_to_reduce_is_refused(precision):
    sizes = {name: SMALL[name] for name in ("channels", "context", "horizon")}
    form = inference_form(randomised(DLinearConfig(**sizes)))
    with pytest.raises(ExportError, match=f"no part of the model can run in {precision}"):
        reduce_precision(form, precision)


def test_the_correlation_stays_in_float32():
    form = reduced(CONFIGS["autoformer"], "float16")
    assert names(form, nn.Linear) == {
        "encoder_layers.0.attention.value",
        "decoder_layers.0.self_attention.value",
        "decoder_layers.0.cross_attention.value",
    }
    assert not names(form, ATTENTIONS)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (
            CONFIGS["transformer"].model_copy(update={"encoder_layers": 2}),
            {"encoder_layers.0.attention", "decoder_layers.0.self_attention"},
        ),
        (CONFIGS["patchtst"], set()),
        (PatchTSTConfig(**SMALL | {"heads": 8}), set()),
        (
            PatchTSTConfig(**SMALL | {"encoder_layers": 2}, window_norm=None),
            {"branches.0.layers.0.attention"},
        ),
    ],
)
def test_attention_that_reads_unbounded_tokens_stays_in_float32(config, kept):
    form = inference_form(randomised(config))
    attentions = {n for n, m in form.named_modules() if isinstance(m, ATTENTIONS)}
    networks = {n for n, m in form.named_modules() if isinstance(m, FeedForward)}
    assert kept <= attentions
    form = reduced(config, "bfloat16")
    assert names(form, ATTENTIONS) == attentions - kept
    assert names(form, FeedForward) == networks


def test_a_history_far_from_the_data_does_not_overflow():
    config = CONFIGS["transformer"]
    history, *calendars = (p if p is None else p.float() for p in inputs(config))
    with torch.inference_mode():
        assert reduced(config, "float16")(history + 10_000, *calendars).isfinite().all()


def test_indices_stay_integers():
    class Chooses(nn.Module):
        def forward(self, tokens: torch.Tensor, keys: torch.Tensor) -> Sparse:
            return Sparse(keys, tokens)

    keys = torch.tensor([4097])
    found = Reduced(Chooses(), torch.float16)(torch.ones(1), keys)
    assert torch.equal(found.keys, keys)
    assert found.weights.dtype == torch.float32


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
