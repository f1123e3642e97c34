"""Covariates in tables: columns by name, with the future in rows after the last target."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.covariates import Covariate
from foretell.service.forecast import table_covariates
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, table_of
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    forecast_of_shop,
    kiosk,
    models,
    server,
    shop,
)
from tests.support.bundles import Spec

__all__ = ["models", "server"]

SERVED = (SHOP, KIOSK, Spec(name="plain"))
STAFF = ("few", "many")
TARGETS = {"shop": ["sales", "returns"], "kiosk": ["sales"]}
Columns = dict[str, list[Any]]


def columns_of(entry: Mapping[str, Any], model: str, name: str = "a") -> Columns:
    """The rows of an input in JSON, and those of its future."""
    rows = len(entry["series"])
    series = np.array(entry["series"], object).reshape(rows, -1)
    future = entry.get("future_covariates", {})
    count = max([rows, *map(len, future.values())])
    found = {"unique_id": [name] * count, **future}
    past = dict(zip(TARGETS[model], series.T.tolist(), strict=True))
    for each, values in {**past, **entry.get("past_covariates", {})}.items():
        found[each] = [*values, *[None] * (count - rows)]
    for each, value in entry.get("static_covariates", {}).items():
        found[each] = [value] * count
    if "start_timestamp" in entry:
        start = datetime.fromisoformat(entry["start_timestamp"])
        found["ds"] = [start + timedelta(hours=hour) for hour in range(count)]
    return found


def joined(*parts: Columns) -> Columns:
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def send(client: Client, columns: Columns | pa.Table, query: str) -> Any:
    return client.send_table(
        pa.table(columns) if isinstance(columns, dict) else columns, f"/forecast?model={query}"
    )


def forecast(client: Client, columns: Columns | pa.Table, query: str) -> np.ndarray[Any, Any]:
    """The forecast `[steps, targets]`."""
    found = table_of(send(client, columns, query))
    names = TARGETS[query.partition("&")[0]]
    return np.stack([found[name].to_numpy() for name in names], axis=1)


def error(client: Client, columns: Columns | pa.Table, query: str) -> dict[str, Any]:
    answer = send(client, columns, query)
    assert answer.status_code == 422, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


@pytest.mark.parametrize("steps", [1, 4, 6, 12])
def test_forecast_reads_covariates_of_every_pass(server: Client, steps: int) -> None:
    entry = shop(rows=11, ahead=-(-steps // HORIZON) * HORIZON)
    found = forecast(server, columns_of(entry, "shop"), f"shop&horizon={steps}")
    np.testing.assert_allclose(found, forecast_of_shop(entry, steps), rtol=1e-5)


def test_times_of_the_forecast_are_those_of_the_rows_with_the_future(server: Client) -> None:
    columns = columns_of(kiosk(), "kiosk")
    found = table_of(send(server, columns, "kiosk"))
    assert found["ds"].to_pylist() == columns["ds"][CONTEXT:]
    columns["ds"][-1] += timedelta(hours=1)
    assert error(server, columns, "kiosk")["param"] == "ds[11]"


TYPES: dict[str, list[pa.DataType]] = {
    "texts": [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    "booleans": [pa.bool_(), pa.int8(), pa.float32()],
    "numbers": [pa.float64()],
}
KINDS = {
    **dict.fromkeys(("sky", "region", "staff"), "texts"),
    **dict.fromkeys(("open", "sale"), "booleans"),
    **dict.fromkeys(("price", "size", "visits", "sales", "returns"), "numbers"),
}


def drawn_table(data: st.DataObject, columns: Columns) -> pa.Table:
    """The columns in any order and of any type that fits; rows of series may alternate."""
    ids = np.array(columns["unique_id"])
    order = np.arange(len(ids))
    if data.draw(st.booleans()):
        places = [np.flatnonzero(ids[: n + 1] == ids[n]).size for n in range(len(ids))]
        order = np.argsort(places, kind="stable")
    arrays = {}
    for name in data.draw(st.permutations(list(columns))):
        values = [columns[name][row] for row in order]
        if name in KINDS:
            kind = data.draw(st.sampled_from(TYPES[KINDS[name]]))
            if KINDS[name] == "booleans" and kind != pa.bool_():
                values = [None if each is None else int(each) for each in values]
            array = pa.chunked_array([pa.array(part, kind) for part in (values[:5], values[5:])])
        else:
            array = pa.array(values)
        arrays[name] = array
    return pa.table(arrays)


@settings(deadline=None, max_examples=60)
@given(
    st.data(),
    st.sampled_from(["shop", "kiosk"]),
    st.sampled_from(["error", "interpolate", "ffill"]),
    st.integers(1, 6),
)
def test_table_is_forecast_as_json(
    server: Client, data: st.DataObject, model: str, missing: str, steps: int
) -> None:
    steps = min(steps, HORIZON) if model == "kiosk" else steps
    ahead = -(-steps // HORIZON) * HORIZON
    entries = []
    for shift in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.integers(CONTEXT, 12))
        entry = kiosk(rows, shift) if model == "kiosk" else shop(rows, ahead, shift)
        for name, values in [
            *entry["future_covariates"].items(),
            *entry.get("past_covariates", {}).items(),
        ]:
            for _ in range(data.draw(st.integers(0, 2)) if missing != "error" else 0):
                values[data.draw(st.integers(0, len(values) - 1))] = None
            if name == "sky" and data.draw(st.integers(0, 9)) == 0:
                values[2] = "fog"
        if data.draw(st.integers(0, 9)) == 0 and "static_covariates" in entry:
            entry["static_covariates"]["region"] = "west"
        entries.append({"name": f"s{shift}", **entry})
    columns = joined(*(columns_of(each, model, each["name"]) for each in entries))
    table = drawn_table(data, columns)
    options = {"missing": missing, "horizon": steps}
    expected = server.forecast({"model": model, "inputs": entries, "options": options})
    found = send(server, table, f"{model}&missing={missing}&horizon={steps}")
    assert found.status_code == expected.status_code, found.text
    if found.status_code != 200:
        given, sent = found.json()["error"], expected.json()["error"]
        assert given["message"] == sent["message"].replace("options.missing is", "missing is")
        assert given["param"].partition("[")[0] == sent["param"].split(".")[-1].partition("[")[0]
        return
    answer = table_of(found)
    outputs = {
        each["name"]: each
        for output in expected.json()["outputs"]
        for each in output["content"] or ()
    }
    errors = {each["unique_id"] for each in notes_of(answer)["errors"]}
    assert {*outputs} | errors == {each["name"] for each in entries}
    for name, output in outputs.items():
        rows = answer.filter(pa.compute.equal(answer["unique_id"], name))
        values = np.stack([rows[each].to_numpy() for each in TARGETS[model]], axis=1)
        np.testing.assert_array_equal(
            values, np.float32(output["mean_forecast"]).reshape(values.shape)
        )
    filled = {name: each["filled"] for name, each in outputs.items() if "filled" in each}
    assert notes_of(answer).get("filled", {}) == filled


@pytest.mark.parametrize("make", ["pandas", "polars"])
def test_frames(server: Client, make: str) -> None:
    entry = shop()
    columns = columns_of(entry, "shop")
    frame = pd.DataFrame(columns) if make == "pandas" else pl.DataFrame(columns)
    if isinstance(frame, pd.DataFrame):
        frame["sky"] = frame["sky"].astype("category")
        table = pa.Table.from_pandas(frame, preserve_index=False)
    else:
        table = frame.to_arrow()
    np.testing.assert_allclose(forecast(server, table, "shop"), forecast_of_shop(entry), rtol=1e-5)


def test_backtest_reads_the_rows_alone(server: Client) -> None:
    entry = shop(30, 0)
    answer = server.send_table(pa.table(columns_of(entry, "shop")), "/backtest?model=shop")
    assert answer.status_code == 200, answer.text
    expected = server.request(
        "POST", "/backtest", json={"model": "shop", "inputs": [{**entry, "name": "a"}]}
    ).json()
    assert answer.json()["outputs"][0]["content"] == expected["outputs"][0]["content"]
    assert "actual_covariates" in [each["type"] for each in answer.json()["warnings"]]


def test_quantiles_are_corrected_as_in_json(server: Client) -> None:
    entry = shop(60)
    options = {"quantiles": [0.1, 0.9], "calibration": "history"}
    expected = server.first({"model": "shop", "inputs": [entry], "options": options})
    query = "shop&quantiles=0.1,0.9&calibration=history"
    found = table_of(send(server, columns_of(entry, "shop"), query))
    for level in ("0.1", "0.9"):
        quantile = [each[0] for each in expected["quantiles"][level]]
        np.testing.assert_array_equal(found[f"sales_q{level}"], np.float32(quantile))


def test_columns_of_covariates_are_read(server: Client) -> None:
    columns = columns_of(kiosk(), "kiosk") | {"colour": ["red"] * 12}
    warnings = notes_of(table_of(send(server, columns, "kiosk")))["warnings"]
    ignored = [each["message"] for each in warnings if each["type"] == "ignored_field"]
    assert ignored == ["columns that are not read: colour"]


def test_past_category_may_be_columns_of_its_categories(server: Client) -> None:
    columns = columns_of(kiosk(), "kiosk")
    by_name = forecast(server, columns, "kiosk")
    staff = columns.pop("staff")
    for category in STAFF:
        columns[f"staff={category}"] = [each and float(each == category) for each in staff]
    np.testing.assert_array_equal(forecast(server, columns, "kiosk"), by_name)
    found = error(server, columns | {"staff": staff}, "kiosk")
    assert found["param"] == "staff"
    assert found["message"] == "it is in staff=few, staff=many, too; leave out one of both"


def test_error_of_one_series_leaves_the_others(server: Client) -> None:
    parts = [columns_of(shop(shift=n), "shop", name) for n, name in enumerate("abc")]
    parts[1]["sky"][3] = "rian"
    found = table_of(send(server, joined(*parts), "shop"))
    (refused,) = notes_of(found)["errors"]
    assert (refused["unique_id"], refused["param"]) == ("b", "sky[15]")
    assert "did you mean 'rain'" in refused["message"]
    values = np.stack([found[name].to_numpy() for name in TARGETS["shop"]], axis=1)
    for rows, shift in ((slice(0, 4), 0), (slice(4, 8), 2)):
        expected = forecast_of_shop(shop(shift=shift))
        np.testing.assert_allclose(values[rows], expected, rtol=1e-5)


Change = Callable[[Columns], object]


def put(name: str, row: int, value: Any) -> Change:
    return lambda columns: columns[name].__setitem__(row, value)


def whole(name: str, value: Any) -> Change:
    return lambda columns: columns.update({name: [value] * len(columns["unique_id"])})


def rename(name: str, wrong: str) -> Change:
    return lambda columns: columns.update({wrong: columns.pop(name)})


def cut(rows: int) -> Change:
    return lambda columns: [values.__delitem__(slice(rows, None)) for values in columns.values()]


WRONG: list[tuple[str, Change, str, str]] = [
    ("shop", lambda columns: columns.pop("price"), "price", "expected one column of this name"),
    ("shop", rename("price", "prices"), "price", "did you mean 'prices'"),
    ("shop", rename("size", "sizes"), "size", "did you mean 'sizes'"),
    ("kiosk", rename("staff", "stafff"), "staff", "did you mean 'stafff'"),
    ("kiosk", rename("sale", "sales_"), "sale", "expected one column of this name"),
    ("kiosk", rename("visits", "visit"), "visits", "did you mean 'visit'"),
    ("shop", cut(8), "unique_id[0]", "expected 4 rows after .* sales, returns, .* got 0"),
    ("shop", cut(11), "unique_id[0]", "expected 4 rows after .* sales, returns, .* got 3"),
    ("shop", put("sales", 8, 1.0), "unique_id[0]", "expected 4 rows after .* got 3"),
    ("kiosk", put("visits", 10, 1.0), "visits[10]", "expected null after the last value of sales"),
    ("kiosk", put("staff", 9, "few"), "staff[9]", "expected null after the last value of sales"),
    (
        "kiosk",
        whole("sales", math.nan),
        "sales[0]",
        "expected a value of sales in the rows of a series before its future, got none",
    ),
    ("shop", whole("sales", None), "sales", "expected a column of numbers, got null"),
    ("shop", whole("price", "9"), "price", "expected a column of numbers, got string"),
    ("shop", whole("open", "yes"), "open", "expected a column of booleans, .* got string"),
    ("shop", whole("sky", 1), "sky", r"strings, .* got int64; .*df\['sky'\].cast"),
    ("shop", put("price", 9, 1e39), "price[9]", "finite number"),
    ("shop", whole("open", 2), "open[0]", "expected true or false, got 2"),
    ("shop", put("sky", 5, "rian"), "sky[5]", "did you mean 'rain'"),
    ("kiosk", put("staff", 2, "lots"), "staff[2]", "expected a category of the training rows"),
    ("shop", put("price", 11, None), "price[11]", "a value is missing, and missing is 'error'"),
    ("shop", put("sky", 0, None), "sky[0]", "a value is missing, and missing is 'error'"),
    ("shop", whole("sky", None), "sky[0]", "a value is missing, and missing is 'error'"),
    ("kiosk", put("visits", 7, None), "visits[7]", "a value is missing"),
    ("kiosk", put("staff", 7, None), "staff[7]", "a value is missing"),
    ("shop", put("size", 9, None), "size[9]", "required, but missing: shop reads it"),
    ("shop", put("size", 9, 7.0), "size[9]", "one value in all rows .*, got 2.5 and 7.0 in a"),
    ("shop", put("region", 1, "north"), "region[1]", "got 'south' and 'north' in a"),
]


@pytest.mark.parametrize(("model", "change", "place", "message"), WRONG)
def test_mistakes_have_their_place(
    server: Client, model: str, change: Change, place: str, message: str
) -> None:
    columns = copy.deepcopy(columns_of(shop() if model == "shop" else kiosk(), model))
    change(columns)
    found = error(server, columns, model)
    assert found["param"] == place
    assert re.search(message, found["message"]), found["message"]


def test_places_are_rows_of_the_table(server: Client) -> None:
    """Rows of two series alternate."""
    one, two = (columns_of(shop(), "shop", name) for name in "ab")
    for part in (one, two):
        part["sky"][5] = "fog"
    pairs = {
        name: [each for pair in zip(one[name], two[name], strict=True) for each in pair]
        for name in one
    }
    assert error(server, pairs, "shop")["param"] == "sky[10]"


def test_covariates_of_whole_passes_are_needed(server: Client) -> None:
    columns = columns_of(shop(ahead=2), "shop")
    assert error(server, columns, "shop&horizon=2")["message"] == (
        "expected 4 rows after the last value of sales, returns, with the future covariates of the "
        "steps after it, which the model reads for a horizon of 2, got 2"
    )


def test_gaps_of_targets_before_the_last_value_are_filled(server: Client) -> None:
    entry = shop()
    entry["series"][7][0] = entry["series"][5][1] = None
    options = {"missing": "ffill"}
    expected = server.first({"model": "shop", "inputs": [entry], "options": options})
    found = forecast(server, columns_of(entry, "shop"), "shop&missing=ffill")
    np.testing.assert_array_equal(found, np.float32(expected["mean_forecast"]))


def test_short_dictionary_of_long_texts_is_not_expanded(server: Client) -> None:
    """A small body may name a long text in every row."""
    rows = 200_000
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int8)), pa.array(["x" * 1_000_000])
    )
    columns = columns_of(shop(), "shop").items()
    table = pa.table({**{name: pa.array([each[0]] * rows) for name, each in columns}, "sky": text})
    assert error(server, table, "shop")["param"] == "unique_id[0]"


def test_dictionary_of_many_record_batches_is_read_once(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = shop(rows=40)
    columns = columns_of(entry, "shop")
    sky = pa.array(columns["sky"]).dictionary_encode()
    batches = pa.table({**columns, "sky": sky}).to_batches(max_chunksize=2)
    read = []

    def counted(texts: pa.Array, covariate: Covariate) -> Any:
        read.append(covariate.name)
        return codes_of(texts, covariate)

    codes_of = table_covariates._codes_of
    monkeypatch.setattr(table_covariates, "_codes_of", counted)
    found = forecast(server, pa.Table.from_batches(batches), "shop")
    np.testing.assert_allclose(found, forecast_of_shop(entry), rtol=1e-5)
    assert read.count("sky") == 1
    # The regions are strings in each of the batches.
    assert read.count("region") == len(batches)
