"""Operators of torch that graphs have other operators for, so that CUDA has kernels for all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.export.lowerings import LOWERINGS
from foretell.export.operators import without_kernel
from foretell.export.simplification import simplify

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


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], set[str]]] = {
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


@pytest.mark.parametrize("case", CASES)
def test_operators_have_kernels_on_cuda(case: str) -> None:
    function, wanted = CASES[case]
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
