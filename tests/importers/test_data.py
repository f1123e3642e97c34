import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from foretell.data.errors import DataError
from foretell.data.splits import Splits
from foretell.importers.data import read_scaler, split_rows
from foretell.importers.errors import ImporterError, explained


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("ett_hour", Splits.ett_hourly()),
        ("ett_minute", Splits.ett_minute()),
        ("custom", Splits.by_fraction()),
        ("0.6,0.2,0.2", Splits.by_fraction(0.6, 0.2, 0.2)),
    ],
)
def test_split(split: str, expected: Splits) -> None:
    assert split_rows(split) == expected


@pytest.mark.parametrize("split", ["ett", "0.7,0.3", "a,b,c", ""])
def test_missing_split(split: str) -> None:
    with pytest.raises(ImporterError, match="expected ett_hour, ett_minute, custom or three"):
        split_rows(split)


def test_fractions_must_add_up_to_one() -> None:
    with pytest.raises(DataError, match="add up to 1"):
        split_rows("0.5,0.1,0.1")


def test_scaler_as_numbers() -> None:
    scaler = read_scaler("1,-2.5", "0.5, 3e2")
    assert scaler is not None
    assert scaler.mean == (1.0, -2.5)
    assert scaler.std == (0.5, 300.0)
    assert read_scaler(None, None) is None


@pytest.mark.parametrize("name", ["a.npy", "a.json", "a.csv", "a.txt"])
def test_scaler_as_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    numbers = [1.5, 2.5]
    if name == "a.npy":
        np.save(path, np.array([numbers], np.float32))
    else:
        path.write_text(json.dumps(numbers) if name == "a.json" else "1.5,\n2.5\n")
    scaler = read_scaler(str(path), "1,1")
    assert scaler is not None
    assert scaler.mean == (1.5, 2.5)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ("1,2", None, "belong together"),
        (None, "1,2", "belong together"),
        ("1,2", "1", "--mean has 2 numbers, --std 1"),
        ("1", "0", "--std: a standard deviation is not positive"),
        ("1", "-1", "not positive"),
        ("nowhere.txt", "1", "--mean nowhere.txt"),
        ("nowhere.npy", "1", "--mean nowhere.npy: No such file"),
        ("nan", "1", "expected finite numbers"),
        ("", "1", "expected finite numbers"),
    ],
)
def test_no_scaler(mean: str | None, std: str | None, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        read_scaler(mean, std)


def test_scaler_never_unpickles(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(ImporterError, match="allow_pickle"):
        read_scaler(str(path), "1")


class Arguments(BaseModel):
    heads: int
    kind: Literal["a"]


def test_error_names_the_missing_field_and_shows_no_values() -> None:
    with pytest.raises(ValidationError) as caught:
        Arguments.model_validate({"kind": "b"})
    assert explained(caught.value) == (
        "its arguments do not fit together: heads: Field required; kind 'b': Input should be 'a'"
    )
