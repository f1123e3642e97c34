"""Mistakes in covariates by every entry: each is refused with its place and a remedy."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from foretell.batch.errors import BatchError
from foretell.client import Client as PythonClient
from foretell.client import InvalidInputError
from foretell.predict.in_process import opened
from tests.foretell.batch.tables import rejected
from tests.foretell.batch.tables import run as run_batch
from tests.service.client import Client
from tests.service.forecast.shops import SHOP, codes, shop
from tests.service.forecast.test_table_covariates import TARGETS, columns_of
from tests.service.inference.bodies import binary, infer, joined, request
from tests.service.nixtla.test_covariates import body as nixtla_body
from tests.support.bundles import write_bundle
from tests.support.command import run

# The nixtla client has one target.
STORE = replace(SHOP, name="store", channels=("sales",), example=0)
FUTURE, STATIC = "future_covariates", "static_covariates"
Input = dict[str, Any]


class Entries(NamedTuple):
    models: Path
    http: Client
    python: PythonClient


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entries]:
    folder = tmp_path_factory.mktemp("stores")
    write_bundle(folder, STORE)
    with Client(folder) as client, opened(folder / "store", "cpu") as python:
        yield Entries(folder, client, python)


def store() -> Input:
    given = shop() | {"start_timestamp": "2024-01-01T00:00:00"}
    return {**given, "series": [row[0] for row in given["series"]]}


def columns(given: Input) -> dict[str, list[Any]]:
    return columns_of(given, "store")


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "store", ["sales"])


def by_json(entries: Entries, given: Input, _folder: Path) -> str:
    error = entries.http.error({"model": "store", "inputs": [given]})
    return f"{error['param']}: {error['message']}"


def by_table(entries: Entries, given: Input, _folder: Path) -> str:
    answer = entries.http.send_table(pa.table(columns(given)), "/forecast?model=store")
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    return f"{error['param']}: {error['message']}"


def by_tensors(entries: Entries, given: Input, _folder: Path) -> str:
    """The codes of the values; a category that the model does not know has none."""
    known = given[FUTURE]
    names = [name for name in ("price", "open", "sky") if name in known]
    values = [[each if each != "rian" else 7 for each in known[name]] for name in names]
    future = np.array([codes(*pair) for pair in zip(names, values, strict=True)], np.float32).T
    static = [codes(name, [given[STATIC][name]])[0] for name in ("region", "size")]
    arrays = {
        "history": np.array(given["series"], np.float32)[None, :, None],
        "history_covariates": future[None, :8],
        "future_covariates": future[None, 8:],
        "static_covariates": np.array([static], np.float32),
    }
    sent = [binary(each, name=name) for name, each in arrays.items()]
    parts = [np.ascontiguousarray(each) for each in arrays.values()]
    answer = infer(entries.http, *joined(request(*sent), *parts), model="store")
    assert answer.status_code == 422, answer.text
    text: str = answer.json()["error"]
    return text


def by_nixtla(entries: Entries, given: Input, _folder: Path) -> str:
    names = [name for name in ("price", "open") if name in given[FUTURE]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.service.nixtla.test_covariates.NUMBERS", names)
        sent = nixtla_body([given])
    sent["series"]["categorical_exog"] = [len(names), len(names) + 2]
    answer = entries.http.request("POST", "/nixtla/v2/forecast", json=sent)
    assert answer.status_code == 422, answer.text
    text: str = answer.json()["detail"]
    return text


def by_client(method: str) -> Callable[[Entries, Input, Path], str]:
    def send(entries: Entries, given: Input, _folder: Path) -> str:
        with pytest.raises(InvalidInputError) as raised:
            getattr(entries.python, method)(pd.DataFrame(columns(given)), model="store")
        return str(raised.value)

    return send


def by_predict(entries: Entries, given: Input, folder: Path) -> str:
    path = folder / "given.csv"
    pd.DataFrame(columns(given)).to_csv(path, index=False)
    result = run("predict", f"--bundle={entries.models / 'store'}", path)
    assert result.exit_code == 2
    return result.stderr.rpartition("foretell predict: ")[2]


def by_batch(entries: Entries, given: Input, folder: Path) -> str:
    parquet.write_table(pa.table(columns(given)), folder / "given.parquet")
    try:
        run_batch(folder / "given.parquet", entries.models / "store" / "1", folder)
    except BatchError as error:
        return str(error)
    (row,) = rejected(folder).values()
    return f"{row['column']}[{row['row']}]: {row['reason']}"


ENTRIES: dict[str, Callable[[Entries, Input, Path], str]] = {
    "json": by_json,
    "table": by_table,
    "tensors": by_tensors,
    "nixtla": by_nixtla,
    "client": by_client("forecast"),
    "explain": by_client("explain"),
    "predict": by_predict,
    "batch": by_batch,
}


def cut(given: Input) -> None:
    for values in given[FUTURE].values():
        del values[-2:]


MISTAKES: dict[str, Callable[[Input], object]] = {
    "left out": lambda given: given[FUTURE].pop("price"),
    "misspelt": lambda given: given[FUTURE].update(prices=given[FUTURE].pop("price")),
    "short": cut,
    "unseen": lambda given: given[FUTURE]["sky"].__setitem__(5, "rian"),
    "gap": lambda given: given[FUTURE]["price"].__setitem__(9, None),
}
_PRICE = r"inputs\[0\]\.future_covariates\.price"
_ONE_COLUMN = r"price: expected one column of this name; the \w+ has "
_ROWS = "expected 4 rows after the last value of sales, .*got 2"
_CATEGORY = "expected a category of the training rows, got 'rian'; did you mean 'rain'"
EXPECTED: dict[str, dict[str, str]] = {
    "json": {
        "left out": f"{_PRICE}: required, but missing: store reads it; expected 12 values",
        "misspelt": f"{_PRICE}s: store reads no such covariate here; did you mean 'price'",
        "short": f"{_PRICE}: expected 12 values, 8 for .* got 10",
        "unseen": rf"inputs\[0\]\.future_covariates\.sky\[5\]: {_CATEGORY}",
        "gap": rf"{_PRICE}\[9\]: a value is missing",
    },
    "table": {
        "left out": _ONE_COLUMN,
        "misspelt": f"{_ONE_COLUMN}.*did you mean 'prices'",
        "short": rf"unique_id\[0\]: {_ROWS}",
        "unseen": rf"sky\[5\]: {_CATEGORY}",
        "gap": r"price\[9\]: a value is missing",
    },
    # Tensors have no names of covariates.
    "tensors": {
        "left out": r"inputs\[1\].shape: expected \[batch, 8, 3\], got \[1, 8, 2\]",
        "short": r"inputs\[2\].shape: expected \[batch, 4, 3\], got \[1, 2, 3\]",
        "unseen": r"inputs\[1\]: expected a code of 'sky', .*got 7.0 at \[0, 5, 2\]",
        "gap": r"inputs\[2\]: expected finite numbers .*, got nan at \[0, 1, 0\]",
    },
    # Its requests have no names of columns.
    "nixtla": {
        "left out": r"series.X: expected 5 columns, which have no names, in the order price, .* 4",
        "short": r"series.X_future\[0\]: expected a list of 4 values, got 2",
        "unseen": rf"series\[0\].X of sky\[5\]: {_CATEGORY}",
        "gap": r"series\[0\].X of price\[9\]: a value is missing",
    },
    "client": {
        "left out": _ONE_COLUMN,
        "misspelt": f"{_ONE_COLUMN}.*did you mean 'prices'",
        "short": rf"unique_id\[0\]: {_ROWS}",
        "unseen": rf"sky\[5\]: {_CATEGORY}",
        "gap": r"price\[9\]: a value is missing",
    },
    "explain": {
        "left out": _ONE_COLUMN,
        "misspelt": f"{_ONE_COLUMN}.*did you mean 'prices'",
        "short": "price: expected 12 values, 8 for .* got 10",
        "unseen": rf"sky\[5\]: {_CATEGORY}",
        "gap": r"price\[9\]: a value is missing",
    },
    "predict": {
        "left out": ".*given.csv: line 1: no column 'price'; there are",
        "misspelt": ".*no column 'price'; did you mean 'prices'",
        "short": ".*given.csv: expected 4 rows after 2024-01-01T07:00:00 .*price, open.* got 2",
        "unseen": f"a, column 'sky', 2024-01-01T05:00:00: {_CATEGORY}",
        "gap": ".*given.csv: line 11, column 'price': no value; --missing",
    },
    "batch": {
        "left out": ".*given.parquet: expected one column 'price'",
        "misspelt": ".*given.parquet: expected one column 'price'.*did you mean 'prices'",
        "short": rf"unique_id\[0\]: {_ROWS}",
        "unseen": rf"sky\[5\]: {_CATEGORY}",
        "gap": r"price\[9\]: a value is missing",
    },
}
CASES = [(entry, mistake) for entry, mistakes in EXPECTED.items() for mistake in mistakes]


@pytest.mark.parametrize(("entry", "mistake"), CASES)
def test_mistake_is_refused_with_its_place(
    entries: Entries, tmp_path: Path, entry: str, mistake: str
) -> None:
    given = copy.deepcopy(store())
    MISTAKES[mistake](given)
    found = ENTRIES[entry](entries, given, tmp_path)
    assert re.match(EXPECTED[entry][mistake], found, re.DOTALL), found
