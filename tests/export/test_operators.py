"""Operators of graphs: what torch's are exported as, and which devices have kernels for them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, defs
from onnxruntime.capi import onnxruntime_pybind11_state as native
from torch import Tensor, nn
from torch.nn import functional

from foretell.bundle.scaler import Scaler
from foretell.export.errors import ExportError
from foretell.export.graphs import OPSET, trace, trace_all
from foretell.export.lowerings import LOWERINGS
from foretell.export.operators import CUDA_KERNELS, devices_of, without_kernel
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.export.simplification import simplify
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.architectures.transformer import TransformerConfig

FLOAT, HALF, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16


def parsed(body: str, given: str = "float[batch, 4] x", made: str = "float[batch, 4] y", **others):
    """A graph of `x` to `y`; `others` are initializers, and `local` what is declared."""
    local = others.pop("local", "")
    graph = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {OPSET}, "x" : 1]>
        graph ({given}) => ({made}) {local} {{ {body} }}"""
    )
    graph.graph.initializer.extend(
        onnx.helper.make_tensor(name, kind, [len(values)], values)
        for name, (kind, values) in others.items()
    )
    return graph


def model(body: str, weight: int = FLOAT) -> onnx.ModelProto:
    """With a weight `w` of a type."""
    return parsed(body, w=(weight, [1] * 4))


def halved(kind: int) -> onnx.ModelProto:
    body = f"h = Cast <to={kind}> (x) a = Add (h, w) y = Cast <to={FLOAT}> (a)"
    return model(body, kind)


def mean(axes: list[int] | None) -> onnx.ModelProto:
    """Over axes of `[batch, 4, 3]`, or over all."""
    reduced = f"y = ReduceMean <keepdims=1> (x{'' if axes is None else ', axes'})"
    others = {} if axes is None else {"axes": (TensorProto.INT64, axes)}
    return parsed(reduced, "float[batch, 4, 3] x", "float[a, b, c] y", **others)


FITS = model("a = Add (x, w) y = Softmax <axis=-1> (a)")
FOREIGN = model("a = Erf (x) b = Det (x) c = Add (a, w) y = Add (c, b)")
HALVED = f"h = Cast <to={HALF}> (x) s = Sqrt (h) a = Add (s, w) y = Cast <to={FLOAT}> (a)"
# https://github.com/microsoft/onnxruntime/pull/29252 lists operators that still need cuDNN.
INNER = "ReduceMean over an inner axis"


@pytest.mark.parametrize(
    ("graphs", "devices"),
    [
        ([FITS, halved(HALF)], ("cuda", "cpu")),
        ([FITS, FOREIGN], ("cpu",)),
        ([FITS, halved(BRAIN)], ("cuda",)),
    ],
)
def test_devices_have_kernels_for_all_operators(graphs, devices):
    assert devices_of(graphs) == devices


def test_graph_that_fits_no_device_is_refused():
    message = r"on CUDA: Det of FLOAT, Erf of FLOAT; and the CPU has none for bfloat16$"
    with pytest.raises(ExportError, match=message):
        devices_of([FOREIGN, halved(BRAIN)])


@pytest.mark.parametrize(
    ("graph", "missing"),
    [
        (FITS, []),
        (halved(HALF), []),
        (FOREIGN, ["Det of FLOAT", "Erf of FLOAT"]),
        (model(HALVED, HALF), ["Sqrt of FLOAT16"]),
        (
            model("s = Shape (x) t = Concat <axis=0> (s) r = Reshape (x, t) y = Add (r, w)"),
            ["Concat of INT64", "Shape of FLOAT"],
        ),
        *(
            (model(f"r = {operator} <keepdims=1> (x) y = Add (r, w)"), [f"{operator} of FLOAT"])
            for operator in ("ReduceMin", "ReduceMax")
        ),
        # Shape inference knows nothing of operators of other domains.
        (parsed("a = x.Other (x) y = Add (a, x)"), ["Add of UNDEFINED", "Other of FLOAT"]),
        *((mean(axes), []) for axes in ([0], [2], [0, 1], [-1, 1], [0, 1, 2], None)),
        *((mean(axes), [INNER]) for axes in ([1], [-2], [0, 2])),
    ],
)
def test_operators_without_a_kernel_on_cuda_are_named(graph, missing):
    assert without_kernel(graph) == missing


@pytest.mark.parametrize(
    "graph",
    [
        parsed(
            "y = ReduceMean <keepdims=1> (x, axes)",
            "float[batch, 4] x, int64[1] axes",
            "float[a, b] y",
        ),
        parsed(
            "a = x.Other (x) y = ReduceMean <keepdims=0> (a, axes)",
            made="float[a] y",
            local="<int64[1] axes = {1}>",
        ),
    ],
)
def test_means_over_unknown_axes_are_not_for_cuda(graph):
    assert INNER in without_kernel(graph)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="onnxruntime-gpu can list its kernels only where there is a GPU",
)
@pytest.mark.parametrize("operator", CUDA_KERNELS)
def test_the_installed_onnxruntime_has_the_kernels_of_the_cpu(operator):
    version = defs.get_schema(operator, OPSET).since_version
    # A kernel without a last version is only for its first version.
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


pytestmark = pytest.mark.filterwarnings("ignore")


class Called(nn.Module):
    """A function of `[batch, 5, 3]`, as a module with a parameter `[1, 2, 3]`."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(1)))

    def forward(self, values: Tensor) -> Tensor:
        return self.function(values, self.weight)


def lowered(module: nn.Module) -> onnx.ModelProto:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        module.eval(),
        (torch.randn(2, 5, 3),),
        dynamo=True,
        opset_version=23,
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        optimize=False,
        verbose=False,
        output_names=["found"],
        custom_translation_table=LOWERINGS,
    )
    assert program is not None
    simplify(program.model)
    return program.model_proto


LOWERED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], set[str]]] = {
    "maximum": (lambda x, _: x - x.amax(-1, keepdim=True), {"TopK"}),
    "minimum over time": (lambda x, _: x - x.amin(1, keepdim=True), {"TopK"}),
    "maximum over two axes": (lambda x, _: x - x.amax((1, -1), keepdim=True), {"TopK"}),
    "minimum of each": (lambda x, _: x.amin((1, 2)), {"TopK", "Gather"}),
    "median": (lambda x, _: x - x.sort(dim=1).values[:, 2:3], {"TopK"}),
    "mean over time": (lambda x, _: x - x.mean(1, keepdim=True), {"ReduceSum"}),
    "mean over channels": (lambda x, _: x - x.mean(-1, keepdim=True), {"ReduceMean"}),
    "softplus": (lambda x, _: functional.softplus(30 * x), {"Log", "Relu"}),
    "softplus of a tenth": (lambda x, _: functional.softplus(x, 0.1), {"Log"}),
    "softplus that ends": (lambda x, _: functional.softplus(x, 3, 1), {"Log", "Where"}),
    "asinh": (lambda x, _: (9 * x).asinh(), {"Log"}),
    "asinh of small ones": (lambda x, _: (1e-4 * x).asinh(), {"Log"}),
    "asinh of large ones": (lambda x, _: (1e25 * x).asinh(), {"Log"}),
    "sinh": (lambda x, _: (3 * x).sinh(), {"Exp"}),
    "sinh of small ones": (lambda x, _: (1e-4 * x).sinh(), {"Exp"}),
    "sinh of large ones": (lambda x, _: torch.cat([x * 0 + 88, x * 0 - 200], 1).sinh(), {"Exp"}),
    "prelu": (lambda x, w: functional.prelu(x, w[0, 0, :1]), set()),
    "greater": (lambda x, _: torch.where(x > 0, x, 1.0), {"Where"}),
    "less": (lambda x, _: torch.where(x < 0.1, 1.0, x), {"Where"}),
    "own length": (lambda x, _: x[..., None].expand(-1, -1, -1, 4) * 1.5, {"Expand"}),
    "batch of another": (lambda x, w: torch.cat([x, w.expand(x.shape[0], -1, -1)], 1), {"Add"}),
    "indices": (
        lambda x, _: x.gather(1, x.topk(1, dim=1).indices.expand(*x.shape)),
        {"Expand"},
    ),
    "full like": (lambda x, _: torch.full_like(x, 0.5) * x, {"Add"}),
    "ones like": (lambda x, _: torch.cat([x, torch.ones_like(x[:, :1])], 1), {"Add"}),
    "an output": (lambda x, w: w.expand(x.shape[0], -1, -1), {"Add"}),
    "zeros like": (lambda x, _: torch.cat([x, torch.zeros_like(x[:, :1])], 1), {"Add"}),
    "flattened": (
        lambda x, w: torch.cat(
            [x.transpose(1, 2).reshape(-1, 5, 1), w[:, :1, :1].expand(3 * x.shape[0], -1, -1)], 1
        ),
        {"Add"},
    ),
}


# CUDA has no kernels for these; they are traced all the same.
ELSEWHERE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maximum of all": lambda x, _: x - x.amax(),
    "mean of all but time": lambda x, _: x - x.mean((0, 2), keepdim=True),
    "mean in doubles": lambda x, _: (1e5 + x).mean(-1, dtype=torch.float64),
    "sorted batch": lambda x, _: x.sort(dim=0).values,
    "truth values": lambda x, w: x * (w > 0)[:, :1].expand(x.shape[0], 5, 3),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_operators_without_kernels_on_cuda(case: str) -> None:
    assert_same(ELSEWHERE[case])


@pytest.mark.parametrize("case", LOWERED)
def test_operators_have_kernels_on_cuda(case: str) -> None:
    function, wanted = LOWERED[case]
    graph = assert_same(function, missing=case == "batch of another")
    assert [output.name for output in graph.graph.output] == ["found"]
    assert without_kernel(graph) == []
    assert graph.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    assert wanted <= Counter(node.op_type for node in graph.graph.node).keys()


def assert_same(
    function: Callable[[Tensor, Tensor], Tensor], *, missing: bool = False
) -> onnx.ModelProto:
    """The graph of a function, which gives the numbers of torch."""
    module = Called(function)
    graph = lowered(module)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    values = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(2))
    values[0, 0, 0] = np.nan if missing else 0
    with torch.inference_mode():
        expected = module(values).numpy()
    (name,) = (one.name for one in session.get_inputs())
    (found,) = session.run(None, {name: values.numpy()})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)
    return graph
