"""Every architecture, and every mechanism in one place of a Transformer, on the real provider.

`python -m bench gpu-graphs` has all variants, in all precisions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from foretell.bundle import layout
from foretell.export.adversarial import adversarial
from foretell.export.data_windows import synthetic
from foretell.export.graphs import FILES
from foretell.export.operators import CUDA_KERNELS
from foretell.export.verification import Verified, verify
from foretell.models.checkpoint import load
from foretell.models.config import ARCHITECTURES
from tests.support.stand_in.look import Finding, check, look
from tests.support.stand_in.machine import Machine
from tests.support.trained import MODELS
from tests.support.variants import (
    AUTOFORMERS,
    DLINEARS,
    ITRANSFORMERS,
    MIXED,
    PATCHTSTS,
    SAMPLE,
    Size,
)

Check = Callable[[Size | str], Finding]


@pytest.fixture(scope="module")
def look_at(
    stand_in: Machine, every_mechanism: Path, tmp_path_factory: pytest.TempPathFactory
) -> Check:
    """Checks the graphs of a model, each model once."""

    def verified(name: str, folder: Path) -> Verified:
        info, model = load(every_mechanism / name)
        windows, scaler = synthetic(info, 32, seed=0), info.scaler
        extreme = adversarial(windows.take(slice(4)), scaler, 0, info.config.observed_steps)
        return verify(model, scaler, folder, windows, extreme)

    @cache
    def look_once(model: Size | str) -> Finding:
        if isinstance(model, Size):
            return check(stand_in, model, ["float32"])[0]
        found, bundle = Finding(model, "float32"), every_mechanism / "models" / model / "1"
        folder = tmp_path_factory.mktemp("optimised")
        shutil.copy(bundle / layout.WEIGHTS, folder)
        look(
            stand_in,
            found,
            [bundle / file for file in FILES.values()],
            folder,
            partial(verified, model),
        )
        return found

    return look_once


@pytest.mark.parametrize(
    "model", [*SAMPLE, *MODELS], ids=lambda model: getattr(model, "name", model)
)
def test_graph_is_captured_and_its_optimised_form_is_right(
    look_at: Check, model: Size | str
) -> None:
    found = look_at(model)
    assert found.faults == []
    assert found.captured == {"forecast": True, "explain": True}
    assert 0 < found.error < 1e-5


def test_sample_has_every_architecture_and_operator(look_at: Check) -> None:
    assert {type(size.config) for size in SAMPLE} == set(ARCHITECTURES.values())
    found = set().union(*(look_at(model).operators for model in (*SAMPLE, *MODELS)))
    # Only mechanisms of users may have Less and PRelu.
    assert found == set(CUDA_KERNELS) - {"Less", "PRelu"}


@pytest.mark.parametrize(
    ("size", "precision"),
    [
        (AUTOFORMERS[0], "float16"),
        (MIXED[0], "bfloat16"),
        (PATCHTSTS[1], "float16"),
        (ITRANSFORMERS[0], "bfloat16"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_graphs_in_half_precision(stand_in: Machine, size: Size, precision: str) -> None:
    (found,) = check(stand_in, size, [precision])  # type: ignore[list-item]
    assert (found.faults, found.left_out) == ([], "")


def test_models_without_half_precision_are_left_out(stand_in: Machine) -> None:
    (found,) = check(stand_in, DLINEARS[0], ["float16"])
    assert found.left_out == "precision: no part of the model can run in float16"
    assert (found.operators, found.faults) == (set(), [])


def graph(path: Path, *nodes: onnx.NodeProto, **constants: np.ndarray) -> Path:
    """`history` `[batch, 4, 6]` through nodes to `forecast`."""
    batch = helper.make_tensor_value_info("history", TensorProto.FLOAT, ["batch", 4, 6])
    forecast = helper.make_tensor_value_info("forecast", TensorProto.FLOAT, None)
    made = helper.make_graph(
        nodes,
        "g",
        [batch],
        [forecast],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, path)
    return path


AXIS = np.array([1])


@pytest.mark.parametrize(
    ("nodes", "constants", "reason"),
    [
        # Operators that the exporter's list lacks are refused here.
        (
            [helper.make_node("ReduceMean", ["history", "axis"], ["forecast"])],
            {"axis": AXIS},
            "cuDNN is unavailable",
        ),
        (
            [helper.make_node("ReduceMin", ["history", "axis"], ["forecast"])],
            {"axis": AXIS},
            "cuDNN is unavailable",
        ),
        (
            [
                helper.make_node("Transpose", ["history"], ["turned"], perm=[0, 2, 1]),
                helper.make_node("MatMul", ["history", "turned"], ["square"]),
                helper.make_node("Det", ["square"], ["forecast"]),
            ],
            {},
            "would run 1 of its nodes on the CPU",
        ),
    ],
)
def test_graphs_without_cuda_kernels_are_refused(
    stand_in: Machine,
    tmp_path: Path,
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    reason: str,
) -> None:
    path = graph(tmp_path / "g.onnx", *nodes, **constants)
    (line,) = stand_in.run("tests.support.stand_in.graphs", path).splitlines()
    assert reason in json.loads(line)["refused"]


def test_batched_products_with_lists_of_addresses_are_captured(
    stand_in: Machine, tmp_path: Path
) -> None:
    """Captured graphs keep the lists; a hundred fill onnxruntime's first allocation."""
    names = ["history", *(f"x{i}" for i in range(400)), "forecast"]
    nodes = [
        helper.make_node("MatMul", ["square", source], [target])
        for source, target in pairwise(names)
    ]
    path = graph(tmp_path / "g.onnx", *nodes, square=np.eye(4, dtype=np.float32))
    (line,) = stand_in.run("tests.support.stand_in.graphs", path).splitlines()
    assert json.loads(line)["captured"] is True
