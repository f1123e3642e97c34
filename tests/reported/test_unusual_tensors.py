"""Tensors that are no plain floats were misread, or ended in a traceback.

Reported of other projects as google/praxis#68 (weights of eight bits) and
vllm-project/compressed-tensors#536 (float8).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.importers.keys import load_weights
from foretell.importers.reading import read_safetensors, read_state
from tests.importers import published

VALUES = torch.tensor([[0.0, 1.5], [-2.0, 0.0]])


def quantised(values: Tensor) -> Tensor:
    return torch.quantize_per_tensor(values, 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    "change",
    [
        Tensor.to_sparse,
        Tensor.half,
        Tensor.double,
        lambda values: values.to(torch.bfloat16),
        lambda values: values.to(torch.float8_e4m3fn),
        lambda values: values.to(torch.float8_e5m2),
    ],
)
def test_what_is_exact_is_read(tmp_path: Path, change: Callable[[Tensor], Tensor]) -> None:
    torch.save({"weight": change(VALUES)}, tmp_path / "a.pth")
    assert torch.equal(read_state(tmp_path / "a.pth")["weight"].float(), VALUES)


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize("change", [Tensor.to_sparse_csr, Tensor.to_sparse_csc])
def test_compressed_rows_and_columns_are_read(
    tmp_path: Path, change: Callable[[Tensor], Tensor]
) -> None:
    torch.save({"weight": change(VALUES)}, tmp_path / "a.pth")
    assert torch.equal(read_state(tmp_path / "a.pth")["weight"], VALUES)


@pytest.mark.filterwarnings("ignore:.*[Qq]uantiz")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quantised, r"weight is quantised \(qint8\); save the model as it was before"),
        (lambda values: values.to(torch.complex64), "weight is of complex numbers"),
        (lambda values: values.to("meta"), "weight has a shape and no values"),
        (lambda values: values.double() + 1e300, r"weight has values beyond 3\.4e38"),
        (lambda values: values.double() / 0, "weight has values that are not finite"),
    ],
)
def test_what_is_not_is_refused_by_name(
    tmp_path: Path, change: Callable[[Tensor], Tensor], message: str
) -> None:
    torch.save({"weight": change(VALUES)}, tmp_path / "a.pth")
    with pytest.raises(ImporterError, match=message):
        read_state(tmp_path / "a.pth")


def test_safetensors_are_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"weight": VALUES.to(torch.float8_e4m3fn)}, path)
    assert torch.equal(read_safetensors(path)["weight"], VALUES)
    save_file({"weight": VALUES.double() + 1e300}, path)
    with pytest.raises(ImporterError, match=r"weight has values beyond 3\.4e38"):
        read_safetensors(path)


KEYS = published.keys("patchtst")
STATE = published.publish(published.make("patchtst"), KEYS)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_are_no_weights(kind: torch.dtype) -> None:
    key, model = "head.linear.weight", published.make("patchtst")
    with pytest.raises(
        ImporterError,
        match=r"whole numbers; save the model as it was.*\n.*weight is of type u?(int|bool)",
    ):
        load_weights(model, KEYS, STATE | {key: STATE[key].to(kind)})
    counter = {"encoder.norm.1.num_batches_tracked": torch.tensor(3)}
    load_weights(model, KEYS, STATE | counter)


def test_unknown_key_of_whole_numbers_is_told_as_such() -> None:
    state = STATE | {"scale_steps": torch.ones(3, 2).int()}
    with pytest.raises(ImporterError, match=r"unexpected \(1\):\n    scale_steps \[3, 2\]"):
        load_weights(published.make("patchtst"), KEYS, state)
