import onnx
import onnxruntime
import pytest
from onnx import TensorProto, defs
from onnxruntime.capi import onnxruntime_pybind11_state as native

from foretell.bundle.manifest import Scaler
from foretell.export.errors import ExportError
from foretell.export.graphs import OPSET, trace, trace_all
from foretell.export.operators import CUDA_KERNELS, devices_of, without_kernel
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.architectures.transformer import TransformerConfig

FLOAT, HALF, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16


def model(body: str, weight: int = FLOAT) -> onnx.ModelProto:
    """`x` to `y`, both `[batch, 4]` in float32, with a weight `w` of a type."""
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}]>
        graph (float[batch, 4] x) => (float[batch, 4] y) {{ {body} }}"""
    )
    parsed.graph.initializer.append(onnx.helper.make_tensor("w", weight, [4], [1] * 4))
    return parsed


def halved(kind: int) -> onnx.ModelProto:
    body = f"h = Cast <to={kind}> (x) a = Add (h, w) y = Cast <to={FLOAT}> (a)"
    return model(body, kind)


FITS = model("a = Add (x, w) y = Softmax <axis=-1> (a)")
FOREIGN = model("a = Erf (x) b = Det (x) c = Add (a, w) y = Add (c, b)")


def test_what_both_devices_run():
    assert without_kernel(FITS) == without_kernel(halved(HALF)) == []
    assert devices_of([FITS, halved(HALF)]) == ("cuda", "cpu")


def test_what_has_no_kernel_is_for_the_cpu_alone():
    assert without_kernel(FOREIGN) == ["Det of FLOAT", "Erf of FLOAT"]
    assert devices_of([FITS, FOREIGN]) == ("cpu",)


def test_bfloat16_is_for_cuda_alone():
    assert devices_of([FITS, halved(BRAIN)]) == ("cuda",)


def test_what_fits_no_device_is_refused():
    message = r"on CUDA: Det of FLOAT, Erf of FLOAT; and the CPU has none for bfloat16$"
    with pytest.raises(ExportError, match=message):
        devices_of([FOREIGN, halved(BRAIN)])


def test_knows_an_operator_by_its_type():
    body = f"h = Cast <to={HALF}> (x) s = Sqrt (h) a = Add (s, w) y = Cast <to={FLOAT}> (a)"
    assert without_kernel(model(body, HALF)) == ["Sqrt of FLOAT16"]


def test_no_arithmetic_of_shapes():
    shapes = model("s = Shape (x) t = Concat <axis=0> (s) r = Reshape (x, t) y = Add (r, w)")
    assert without_kernel(shapes) == ["Concat of INT64", "Shape of FLOAT"]


@pytest.mark.parametrize(
    ("axes", "inner"),
    [
        ([0], False),
        ([2], False),
        ([0, 1], False),
        ([-1, 1], False),
        ([0, 1, 2], False),
        (None, False),
        ([1], True),
        ([-2], True),
        ([0, 2], True),
    ],
)
def test_a_mean_over_inner_axes_wants_cudnn(axes: list[int] | None, inner: bool):
    """https://github.com/microsoft/onnxruntime/pull/29252 names what still does."""
    given = "" if axes is None else ", axes"
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}]>
        graph (float[batch, 4, 3] x) => (float[a, b, c] y) {{
            y = ReduceMean <keepdims=1> (x{given})
        }}"""
    )
    if axes is not None:
        parsed.graph.initializer.append(
            onnx.helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)
        )
    assert without_kernel(parsed) == ["ReduceMean over an inner axis"] * inner


def test_axes_that_are_computed_are_not_trusted():
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}]>
        graph (float[batch, 4] x, int64[1] axes) => (float[a, b] y) {{
            y = ReduceMean <keepdims=1> (x, axes)
        }}"""
    )
    assert "ReduceMean over an inner axis" in without_kernel(parsed)


def test_means_over_what_nobody_knows_are_not_trusted():
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}, "x" : 1]>
        graph (float[batch, 4] x) => (float[a] y) <int64[1] axes = {{1}}> {{
            a = x.Other (x) y = ReduceMean <keepdims=0> (a, axes)
        }}"""
    )
    assert "ReduceMean over an inner axis" in without_kernel(parsed)


@pytest.mark.parametrize("operator", ["ReduceMin", "ReduceMax"])
def test_no_minima_and_maxima(operator: str):
    reduced = model(f"r = {operator} <keepdims=1> (x) y = Add (r, w)")
    assert without_kernel(reduced) == [f"{operator} of FLOAT"]


def test_an_operator_without_a_known_type_is_not_lost():
    """Shape inference knows nothing of operators of other domains."""
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}, "x" : 1]>
        graph (float[batch, 4] x) => (float[batch, 4] y) {{
            a = x.Other (x) y = Add (a, x)
        }}"""
    )
    assert without_kernel(parsed) == ["Add of UNDEFINED", "Other of FLOAT"]


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="onnxruntime-gpu can list its kernels only where there is a GPU",
)
@pytest.mark.parametrize("operator", CUDA_KERNELS)
def test_the_installed_onnxruntime_has_the_kernels_of_the_cpu(operator):
    version = defs.get_schema(operator, OPSET).since_version
    # A kernel without a last version is for its first one alone.
    found = {
        kind
        for kernel in native.get_all_opkernel_def()
        if (kernel.op_name, kernel.domain) == (operator, "")
        and (kernel.version_range[0] == version or _covers(kernel.version_range, version))
        for kinds in kernel.type_constraints.values()
        for kind in kinds
    }
    # float16 is run in float32.
    wanted = {"tensor(float)"} | (
        {"tensor(int64)"} if TensorProto.INT64 in CUDA_KERNELS[operator] else set()
    )
    assert wanted <= found


def _covers(versions: tuple[int, int], version: int) -> bool:
    first, last = versions
    return first < version <= last < 2**31 - 1


def test_decoding_in_chunks_is_for_both_devices():
    sizes = {"d_model": 16, "heads": 2, "d_ff": 24, "encoder_layers": 1, "decoder_layers": 1}
    lengths = {"context": 24, "label": 12, "horizon": 5}
    config = TransformerConfig(
        channels=2, **lengths, **sizes, decoding="autoregressive", decoding_chunk=3
    )
    graphs = trace_all(inference_form(config.build()), Scaler.identity(2))
    assert devices_of(graphs.values()) == ("cuda", "cpu")


@pytest.mark.parametrize(
    "norms",
    [
        *("standard+decoupled", "robust+last", "invariant+mean", "minmax+minmax1", "magnitude"),
        *("local-standard+local-robust", "local-robust-iqr+local-minmax"),
    ],
)
def test_norms_of_windows_run_on_cuda(norms: str) -> None:
    form = inference_form(
        DLinearConfig(channels=2, context=9, horizon=3, window_norm=norms).build()
    )
    assert without_kernel(trace(ServingForm(form, Scaler.identity(2), "forecast"))) == []
