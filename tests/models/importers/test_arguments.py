import pytest

from foretell.models.importers.arguments import read_arguments
from foretell.models.importers.errors import ImporterError


def read(**given: object) -> dict[str, object]:
    facts = read_arguments(given, lambda name: f"--{name}")
    return {name: known.value for name, known in facts.items()}


def test_reads_what_matters_and_leaves_out_the_rest() -> None:
    given = {"seq_len": 96, "n_heads": "8", "dropout": "0.3", "learning_rate": 1, "des": "Exp"}
    assert read(**given) == {"seq_len": 96, "n_heads": 8, "dropout": 0.3}


@pytest.mark.parametrize(
    ("value", "expected"), [("1", 1), (0, 0), (True, 1), (False, 0), ("True", 1), ("false", 0)]
)
def test_switches(value: object, expected: int) -> None:
    assert read(revin=value) == {"revin": expected}


def test_horizon_is_pred_len() -> None:
    assert read(horizon=24) == {"pred_len": 24}


def test_null_padding() -> None:
    assert read(padding_patch=None) == {"padding_patch": "None"}


def test_origin_of_each() -> None:
    facts = read_arguments({"seq_len": 1, "stride": 2}, lambda name: f"--{name}")
    assert [known.origin for known in facts.values()] == ["--seq_len", "--stride"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seq_len", "0", "whole number from 1"),
        ("seq_len", "x", "expected a number"),
        ("label_len", "-1", "whole number from 0"),
        ("activation", "tanh", "expected gelu or relu"),
        ("embed", "time", "expected timeF or fixed or learned"),
        ("revin", "2", "expected 0 or 1"),
        ("factor", "three", "expected a number"),
    ],
)
def test_refuses_with_name_and_origin(name: str, value: str, message: str) -> None:
    with pytest.raises(ImporterError, match=rf"{name} '{value}' \(--{name}\): .*{message}"):
        read(**{name: value})
