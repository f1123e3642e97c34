import importlib
import logging
from collections import Counter

import pytest
import torch
from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from onnxscript.rewriter.rules import common
from torch import Tensor, nn

from foretell.export import simplification
from foretell.export.simplification import simplify


class Roundabout(nn.Module):
    """Does in many operators what a few do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, values: Tensor) -> Tensor:
        part = (values * 1 + 0)[:, 1:][:, :3]
        again = part.reshape(-1, 3, 1).reshape(-1, 3)
        return again.exp() @ (2 * self.weight) + again.exp()


@pytest.mark.filterwarnings("ignore")
def test_no_node_is_left_that_onnxscript_spares() -> None:
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


def test_a_rule_that_another_onnxscript_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(common, "add_0_rule")
    monkeypatch.delattr(common, "transpose_transpose_rule")
    try:
        reloaded = importlib.reload(simplification)
        assert len(reloaded._RULES) == len(reloaded._NAMES) - 2
    finally:
        monkeypatch.undo()
        importlib.reload(simplification)
