"""Covariates in JSON: `past_covariates`, `future_covariates` and `static_covariates`."""

from __future__ import annotations

import copy
import json
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.manifest import Manifest
from foretell.bundle.scaler import Scaler
from foretell.service.forecast import cut
from foretell.service.forecast import parse as parsing
from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.backtest import BACKTESTING
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.parse import JsonCodec, parse
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.forecast.table import read_request
from foretell.service.http.body import LARGE
from foretell.service.settings import Settings
from tests.bundle.test_manifest import FIELDS
from tests.service.client import Client, request_of
from tests.service.forecast.bodies import warned
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    STALL,
    codes,
    forecast_of_shop,
    kiosk,
    models,
    server,
    shop,
)
from tests.support.bundles import Spec, write_bundle

__all__ = ["models", "server"]

SERVED = (SHOP, KIOSK, STALL, Spec(name="plain"), Spec(name="near", context=CONTEXT))
SETTINGS = Settings(models="unused")
FUTURE, PAST, STATIC = "future_covariates", "past_covariates", "static_covariates"
Change = Callable[[dict[str, Any]], object]


def body(model: str, *inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"model": model, "inputs": list(inputs), "options": options}


def job(client: Client, model: str, *inputs: dict[str, Any], **options: Any) -> Job:
    envelope, ignored = parse(json.dumps(body(model, *inputs, **options)).encode())
    return decode(envelope, ignored, client.repository.registry.find(model), client.settings)


def first(client: Client, model: str, entry: dict[str, Any], **options: Any) -> dict[str, Any]:
    return client.first(body(model, entry, **options))


def changed(entry: dict[str, Any], change: Change) -> dict[str, Any]:
    entry = copy.deepcopy(entry)
    change(entry)
    return entry


@pytest.mark.parametrize("steps", [1, 4, 5, 8, 16])
def test_forecast_reads_covariates_of_every_pass(server: Client, steps: int) -> None:
    ahead = -(-steps // HORIZON) * HORIZON
    entry = shop(rows=11, ahead=ahead)
    found = first(server, "shop", entry, horizon=steps)["mean_forecast"]
    np.testing.assert_allclose(found, forecast_of_shop(entry, steps), rtol=1e-5)


def test_past_covariates_by_name_are_the_channels_of_series(server: Client) -> None:
    entry = kiosk(rows=10)
    past = entry["past_covariates"]
    by_name = first(server, "kiosk", entry)
    staff = [float(name == "few") for name in past["staff"]]
    columns = [
        past["visits"],
        entry["series"],
        staff,
        [1 - each for each in staff],
        codes("sale", past["sale"]),
    ]
    wide = {**entry, "series": np.transpose(columns).tolist()}
    del wide["past_covariates"]
    in_series = first(server, "kiosk", wide)
    assert by_name["type"] == "univariate_time_series"
    assert [[value] for value in by_name["mean_forecast"]] == in_series["mean_forecast"]
    assert by_name["channels"] == in_series["channels"] == ["sales"]
    # The series may hold some of them, if it names its columns.
    mixed = {**entry, "series": np.transpose([columns[1], columns[0]]).tolist()}
    mixed["channels"] = ["sales", "visits"]
    mixed["past_covariates"] = {name: past[name] for name in ("staff", "sale")}
    assert first(server, "kiosk", mixed)["mean_forecast"] == in_series["mean_forecast"]


@pytest.mark.parametrize("steps", [4, 12])
def test_future_covariates_may_be_of_the_steps_alone(server: Client, steps: int) -> None:
    entry = shop(rows=9, ahead=steps)
    apart = copy.deepcopy(entry)
    for name in ("price", "sky"):
        whole = entry["future_covariates"][name]
        apart.setdefault("past_covariates", {})[name] = whole[:9]
        apart["future_covariates"][name] = whole[9:]
    whole, parts = (first(server, "shop", each, horizon=steps) for each in (entry, apart))
    assert whole["mean_forecast"] == parts["mean_forecast"]


def test_categories_and_booleans_are_never_far_from_training(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rare")
    scaler = Scaler(mean=(4.0, 1.0, 0.01, 0.01, 0.01), std=(2.0, 1.0, 0.1, 0.1, 0.1))
    write_bundle(folder, replace(KIOSK, changes={"scaler": scaler}))
    entry = kiosk()
    entry[PAST] |= {"staff": ["many"] * 8, "sale": [True] * 8}
    with Client(folder) as client:
        kinds = {each["type"] for each in warned(client, body("kiosk", entry))}
        assert "outside_training_range" not in kinds
        entry[PAST]["visits"] = [90.0] * 8
        found = warned(client, body("kiosk", entry))
    [message] = [each["message"] for each in found if each["type"] == "outside_training_range"]
    assert message is not None
    assert message.startswith("'visits' is 90 on average")


def test_unseen_category_is_other_where_training_had_it(server: Client) -> None:
    entry = shop()
    entry["static_covariates"]["region"] = "west"
    found = first(server, "shop", entry)["mean_forecast"]
    np.testing.assert_allclose(found, forecast_of_shop(entry), rtol=1e-5)


@pytest.mark.parametrize("metadata", [None, {"a": 1}])
def test_large_requests_are_read_alike(server: Client, metadata: Any) -> None:
    """With metadata another parser reads them, in pieces."""
    entry = shop(rows=20_000)
    entry[FUTURE]["price"][5] = 1.0
    request = {**body("shop", entry), "metadata": metadata}
    assert len(json.dumps(request)) > 512 * 1024
    np.testing.assert_allclose(
        server.first(request)["mean_forecast"], forecast_of_shop(entry), rtol=1e-5
    )
    entry[FUTURE]["sky"][19_000] = "rian"
    assert server.error(request)["param"] == "inputs[0].future_covariates.sky[19000]"


@pytest.mark.parametrize(
    "values", [[1, 2], [1.0, 2.0], [True, 2], [["rain"]], ["x", 1], [[1], [2]]]
)
@pytest.mark.parametrize("name", ["price", "open", "sky"])
def test_errors_are_those_of_every_parser(
    server: Client, monkeypatch: pytest.MonkeyPatch, name: str, values: list[Any]
) -> None:
    request = body("shop", changed(shop(), put("future", name, (values * 12)[:12])))
    answers = [server.forecast(request).json()]
    monkeypatch.setattr(parsing, "_simd", None)
    answers.append(server.forecast(request).json())
    monkeypatch.setattr(parsing, "_WHOLE", 0)
    monkeypatch.setattr(cut, "_PIECE", 40)
    answers.append(server.forecast(request).json())
    assert [each.get("error") for each in answers] == [answers[0].get("error")] * 3


def test_many_different_values_are_not_read_on_the_event_loop(server: Client) -> None:
    def work(count: int) -> int:
        entry = changed(shop(), put("future", "sky", ["x"] * count))
        request = json.dumps(body("shop", entry)).encode()
        return JsonCodec(FORECASTING, server.settings).parse(request, request_of()).work

    assert work(200) < LARGE <= work(10_000)


def drop(place: str, name: str) -> Change:
    return lambda entry: entry[f"{place}_covariates"].pop(name)


def put(place: str, name: str, value: Any) -> Change:
    return lambda entry: entry.setdefault(f"{place}_covariates", {}).update({name: value})


def at(place: str, name: str, index: int, value: Any) -> Change:
    return lambda entry: entry[f"{place}_covariates"][name].__setitem__(index, value)


def misspell(place: str, name: str, wrong: str) -> Change:
    def change(entry: dict[str, Any]) -> None:
        given = entry[f"{place}_covariates"]
        given[wrong] = given.pop(name)

    return change


WRONG: list[tuple[str, Change, str, str]] = [
    ("shop", drop("future", "price"), f"{FUTURE}.price", "required, .*expected 12 values, 8 for"),
    ("shop", lambda entry: entry.pop(FUTURE), f"{FUTURE}.price", "required, but missing"),
    ("shop", drop("static", "size"), f"{STATIC}.size", "required, but missing: shop reads it"),
    ("shop", put("static", "size", None), f"{STATIC}.size", "required, but missing"),
    ("kiosk", drop("past", "visits"), f"{PAST}.visits", "required, but missing: send all past"),
    ("shop", misspell("future", "price", "prices"), f"{FUTURE}.prices", "did you mean 'price'"),
    ("shop", misspell("static", "region", "area"), f"{STATIC}.area", "there are region, size"),
    ("kiosk", misspell("past", "staff", "stafff"), f"{PAST}.stafff", "did you mean 'staff'"),
    ("shop", put("static", "price", 1), f"{STATIC}.price", "it belongs in future_covariates"),
    ("shop", put("future", "size", [1] * 12), f"{FUTURE}.size", "it belongs in static_covariates"),
    ("kiosk", put("static", "mass", 1), f"{STATIC}.mass", "its covariates are price, sale, staff"),
    ("plain", put("static", "size", 1), STATIC, "plain reads no covariates; leave them out"),
    ("shop", put("future", "price", [1.0] * 11), f"{FUTURE}.price", "expected 12 .* got 11"),
    ("shop", put("future", "price", [1.0] * 4), f"{FUTURE}.price", "these 4 with the 8 in past_"),
    ("shop", put("past", "price", [1.0] * 8), f"{FUTURE}.price", r"in inputs\[0\].past_covariates"),
    ("kiosk", put("past", "sale", [True]), f"{PAST}.sale", "expected 8 values, .* got 1"),
    ("shop", put("future", "price", 3), f"{FUTURE}.price", "expected a list of values, got 3"),
    ("shop", put("future", "price", {}), f"{FUTURE}.price", "expected a list of .* an object"),
    ("shop", at("future", "price", 9, "9"), f"{FUTURE}.price[9]", "expected a number, got"),
    ("shop", at("future", "price", 0, [9]), f"{FUTURE}.price[0]", "expected a value, got a list"),
    ("shop", at("future", "price", 9, 1e39), f"{FUTURE}.price[9]", "finite number"),
    ("shop", at("future", "open", 3, "yes"), f"{FUTURE}.open[3]", "expected true or false"),
    ("shop", at("future", "open", 3, 2), f"{FUTURE}.open[3]", "expected true or false, got 2"),
    ("shop", at("future", "sky", 5, "rian"), f"{FUTURE}.sky[5]", "did you mean 'rain'"),
    ("shop", at("future", "sky", 5, 1), f"{FUTURE}.sky[5]", "expected the name of a category"),
    ("shop", at("future", "sky", 5, {}), f"{FUTURE}.sky[5]", "expected a value, got an object"),
    ("shop", at("future", "open", 3, 2**61 - 1), f"{FUTURE}.open[3]", "expected true or false"),
    ("shop", put("static", "region", [[[1]]]), f"{STATIC}.region", "got a list"),
    ("shop", put("static", "size", "2"), f"{STATIC}.size", "expected a number, got '2'"),
    ("shop", put("static", "region", 1), f"{STATIC}.region", "expected the name of a category"),
    ("shop", at("future", "price", 11, None), f"{FUTURE}.price[11]", "missing .null.*'error'"),
    ("shop", at("future", "sky", 0, None), f"{FUTURE}.sky[0]", "missing .null.*'error'"),
    ("kiosk", at("past", "visits", 7, None), f"{PAST}.visits[7]", "missing .null.*'error'"),
    ("shop", lambda entry: entry.update(future_covariates=[]), FUTURE, "expected an object"),
]


@pytest.mark.parametrize(("model", "change", "place", "message"), WRONG)
@pytest.mark.parametrize("path", ["/forecast", "/v1/timeseries/forecast"])
def test_mistakes_have_their_place(
    server: Client, path: str, model: str, change: Change, place: str, message: str
) -> None:
    entry = {"shop": shop(), "kiosk": kiosk(), "plain": {"series": [1.0] * 8}}[model]
    sent = body(model, changed(entry, change))
    answer = server.request("POST", path, json=sent)
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["param"] == f"inputs[0].{place}"
    assert re.search(message, error["message"]), error["message"]


def test_error_of_one_input_leaves_the_others(server: Client) -> None:
    bad = changed(shop(), drop("future", "price"))
    outputs = server.forecast(body("shop", shop(), bad, shop(shift=2))).json()["outputs"]
    assert [each["status"] for each in outputs] == ["completed", "error", "completed"]
    assert outputs[1]["error"]["param"] == "inputs[1].future_covariates.price"
    for output, entry in ((outputs[0], shop()), (outputs[2], shop(shift=2))):
        np.testing.assert_allclose(
            output["content"][0]["mean_forecast"], forecast_of_shop(entry), rtol=1e-5
        )


def test_past_covariates_come_from_one_place(server: Client) -> None:
    entry = kiosk()
    wide = {**entry, "series": [[1.0] * 5] * 8}
    error = server.error(body("kiosk", wide))
    assert error["param"] == "inputs[0].past_covariates.visits"
    assert "it is a column of inputs[0].series, too" in error["message"]
    named = {**entry, "series": [[1.0] * 2] * 8, "channels": ["sales", "visits"]}
    error = server.error(body("kiosk", named))
    assert error["param"] == "inputs[0].channels[1]"
    assert "it is in inputs[0].past_covariates.visits, too" in error["message"]


@pytest.mark.parametrize(
    ("steps", "needed", "message"),
    [
        (
            2,
            12,
            "expected 12 values, 8 for the rows of series and 4 for the steps after them, "
            "which the model reads for a horizon of 2, or these 4",
        ),
        (6, 16, "expected 16 values, 8 for the rows of series and 8 for"),
    ],
)
def test_covariates_of_whole_passes_are_needed(
    server: Client, steps: int, needed: int, message: str
) -> None:
    error = server.error(body("shop", shop(ahead=steps), horizon=steps))
    assert error["param"] == "inputs[0].future_covariates.price"
    assert message in error["message"]
    assert error["message"].endswith(f"got {8 + steps}")
    assert (
        len(first(server, "shop", shop(ahead=needed - 8), horizon=steps)["mean_forecast"]) == steps
    )


def test_model_with_past_covariates_does_not_go_beyond_its_horizon(server: Client) -> None:
    error = server.error(body("kiosk", kiosk(), horizon=5))
    assert (error["param"], error["type"]) == ("options.horizon", "not_supported")


@pytest.mark.parametrize(
    ("missing", "name", "given", "filled"),
    [
        ("interpolate", "price", [1, None, 3, None], [1, 2, 3, 3]),
        ("interpolate", "price", [None, None, 3, 4], [3, 3, 3, 4]),
        ("ffill", "price", [1, None, None, 4], [1, 1, 1, 4]),
        *(
            (missing, name, [None, one, None, two], [one, one, one, two])
            for missing in ("interpolate", "ffill")
            for name, one, two in (("open", True, False), ("sky", "snow", "rain"))
        ),
    ],
)
def test_gaps_are_filled(
    server: Client, missing: str, name: str, given: list[Any], filled: list[Any]
) -> None:
    entry, whole = shop(), shop()
    entry[FUTURE][name][:5] = [*given, filled[3]]
    whole[FUTURE][name][:5] = [*filled, filled[3]]
    # Across the end of the rows.
    entry[FUTURE][name][7:10] = [filled[0], None, None]
    whole[FUTURE][name][7:10] = [filled[0]] * 3
    entry[FUTURE][name][10] = whole[FUTURE][name][10] = filled[0]
    answer = server.forecast(body("shop", entry, missing=missing)).json()
    found = answer["outputs"][0]["content"][0]
    np.testing.assert_allclose(found["mean_forecast"], forecast_of_shop(whole), rtol=1e-5)
    assert found["filled"] == {name: given.count(None) + 2}
    assert [each["type"] for each in answer["warnings"]][-1] == "filled"


def test_gaps_of_past_covariates_are_filled(server: Client) -> None:
    entry, whole = kiosk(rows=9), kiosk(rows=9)
    for name, gap, value in (("staff", 8, "few"), ("sale", 0, True), ("visits", 8, 3.5)):
        entry[PAST][name][gap] = None
        whole[PAST][name][gap - 1 if gap else 1] = whole[PAST][name][gap] = value
        entry[PAST][name][gap - 1 if gap else 1] = value
    found = first(server, "kiosk", entry, missing="ffill")
    assert found["mean_forecast"] == first(server, "kiosk", whole)["mean_forecast"]
    # The first row is before the context.
    assert found["filled"] == {"staff": 1, "visits": 1}


@pytest.mark.parametrize(
    ("missing", "place", "gaps", "param", "message"),
    [
        ("ffill", "price", range(2), "price[0]", "no value of 'price' comes before it"),
        ("interpolate", "price", range(12), "price[0]", "'price' has no value"),
        ("interpolate", "sky", range(12), "sky[0]", "'sky' has no value"),
    ],
)
def test_gaps_that_cannot_be_filled(
    server: Client, missing: str, place: str, gaps: range, param: str, message: str
) -> None:
    entry = shop()
    for step in gaps:
        entry[FUTURE][place][step] = None
    error = server.error(body("shop", entry, missing=missing))
    assert error["param"] == f"inputs[0].future_covariates.{param}"
    assert message in error["message"]


def test_masks_are_for_channels_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("masked")
    spec = Spec(
        name="masked",
        channels=("sales", "staff=few", "staff=many"),
        targets=("sales",),
        covariates=Covariates(future=SHOP.covariates.future[:1], past=KIOSK.covariates.past[:1]),  # type: ignore[union-attr]
        observed_steps=8,
    )
    write_bundle(folder, spec)
    entry = {
        "series": [1.0] * 8,
        FUTURE: {"price": [1.0] * 12},
        PAST: {"staff": ["few", None] * 4},
    }
    with Client(folder) as client:
        found = first(client, "masked", entry, missing="mask")
        assert found["masked"] == {"staff": 4}
        entry[FUTURE]["price"][10] = None  # type: ignore[index]
        error = client.error(body("masked", entry, missing="mask"))
    assert error["param"] == "inputs[0].future_covariates.price[10]"
    assert "set options.missing to 'interpolate'" in error["message"]


@pytest.mark.parametrize("kind", ["json", "table", "backtest"])
def test_categories_take_memory_for_what_the_model_reads(tmp_path: Path, kind: str) -> None:
    """Rows before the context have a code, not a number for each category."""
    count, rows = 300, 20_000
    staff = Covariate(
        name="staff", type="category", categories=tuple(f"c{number}" for number in range(count))
    )
    spec = Spec(
        name="many",
        channels=("sales", *staff.channels),
        targets=("sales",),
        covariates=Covariates(past=(staff,)),
    )
    write_bundle(tmp_path, spec)
    names = ["c0", None, "c2", *["c1"] * (rows - 3)]
    sent: dict[str, Any] = {"series": [1.0] * rows, PAST: {"staff": names}}
    table = pa.table({"unique_id": ["a"] * rows, "sales": sent["series"], "staff": names})
    with Client(tmp_path) as client:
        model, given = client.repository.registry.find("many"), client.settings
        tracemalloc.start()
        if kind == "table":
            options = ForecastOptions(missing="ffill")
            found = read_request(table, FORECASTING, options, model, given)[0]
        elif kind == "json":
            found = job(client, "many", sent, missing="ffill")
        else:
            request = body("many", sent, missing="ffill", origins=4)
            envelope, ignored = parse(json.dumps(request).encode(), BACKTESTING)
            found = decode(envelope, ignored, model, given, BACKTESTING)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < rows * count * 2
    assert found.history[0].sum(axis=0)[:4].tolist() == [8, 0, 8, 0]
    if found.past is not None:
        assert found.past.history[0].sum(axis=0)[:4].tolist() == [8, 0, 8, 0]


COMBINED = [
    {"missing": missing, "horizon": horizon, **further}
    for missing, horizon, further in product(
        ("error", "interpolate"),
        (4, 12),
        (
            {},
            {"quantiles": [0.1, 0.9]},
            {"attention": True},
            {"quantiles": [0.5], "calibration": "history"},
        ),
    )
]


@pytest.mark.parametrize("options", COMBINED, ids=str)
def test_forecast_does_not_depend_on_the_rest_of_its_batch(
    server: Client, options: dict[str, Any]
) -> None:
    """With gaps, passes, quantiles, attention and time zones."""
    rows = 8 + 40 * (options.get("calibration") == "history")
    inputs = [shop(rows, ahead=12 if options["horizon"] > 4 else 4, shift=n) for n in range(5)]
    for shift, entry in enumerate(inputs):
        entry["start_timestamp"] = "2024-03-30T22:00:00+01:00"
        entry["time_zone"] = ("Europe/Berlin", "America/New_York", None)[shift % 3]
        if options["missing"] == "interpolate":
            entry["series"][-2][shift % 2] = None
            entry[FUTURE]["sky"][-2 - shift] = None
            entry[FUTURE]["price"][shift] = None
    answer = server.forecast(body("shop", *inputs, **options))
    assert answer.status_code == 200, answer.text
    ForecastResponse.model_validate(answer.json())
    for entry, output in zip(inputs, answer.json()["outputs"], strict=True):
        alone = first(server, "shop", {**entry, "name": output["content"][0]["name"]}, **options)
        for found, own in ((output["content"][0], alone),):
            np.testing.assert_allclose(
                found.pop("mean_forecast"), own.pop("mean_forecast"), rtol=1e-6
            )
            for level in found.get("quantiles", ()):
                np.testing.assert_allclose(
                    found["quantiles"][level], own["quantiles"][level], rtol=1e-5
                )
            found.pop("quantiles", None), own.pop("quantiles", None)
            assert str(found.pop("attention", ""))[:50] == str(own.pop("attention", ""))[:50]
            assert found == own


TYPES = {
    "number": lambda name: Covariate(name=name),
    "boolean": lambda name: Covariate(name=name, type="boolean"),
    "category": lambda name: Covariate(name=name, type="category", categories=("a", "b", "c")),
    "other": lambda name: Covariate(
        name=name, type="category", categories=("a", "b", "c"), other=True
    ),
}
ITEMS: dict[str, dict[Any, float]] = {
    "boolean": {True: 1, False: 0},
    "category": {"a": 0, "b": 1, "c": 2},
    "other": {"a": 0, "b": 1, "c": 2, "z": 3},
}
KINDS = st.lists(st.sampled_from(list(TYPES)), max_size=3)


def draw(data: st.DataObject, kind: str, count: int) -> tuple[list[Any], list[float]]:
    """Values, and their codes."""
    if kind == "number":
        numbers = data.draw(st.lists(st.integers(-99, 99), min_size=count, max_size=count))
        return numbers, [float(number) for number in numbers]
    item = st.sampled_from(list(ITEMS[kind]))
    items = data.draw(st.lists(item, min_size=count, max_size=count))
    return items, [ITEMS[kind][each] for each in items]


@settings(deadline=None)
@given(
    st.data(),
    *(KINDS, KINDS, KINDS),
    st.integers(0, 5),
    st.integers(1, 8),
    st.booleans(),
)
def test_arrays_hold_the_codes_of_any_covariates(
    data: st.DataObject,
    future: list[str],
    past: list[str],
    static: list[str],
    before: int,
    steps: int,
    by_name: bool,
) -> None:
    known = Covariates(
        future=tuple(TYPES[kind](f"f{n}") for n, kind in enumerate(future)),
        past=tuple(TYPES[kind](f"p{n}") for n, kind in enumerate(past)),
        static=tuple(TYPES[kind](f"s{n}") for n, kind in enumerate(static)),
    )
    channels = [*(name for each in known.past for name in each.channels), "load"]
    context, horizon = 3, 2
    steps = min(steps, horizon) if past else steps
    manifest = Manifest.model_validate(
        FIELDS
        | {
            "format": 3,
            "covariates": known,
            "channels": channels,
            "targets": ["load"],
            "context": context,
            "horizon": horizon,
            "calendar": None,
            "attention": [],
            "calibration": None,
            "scaler": {"mean": [0.0] * len(channels), "std": [1.0] * len(channels)},
        }
    )
    rows, ahead = context + before, -(-steps // horizon) * horizon
    load = data.draw(st.lists(st.integers(-9, 9), min_size=rows, max_size=rows))
    entry: dict[str, Any] = {"series": load, PAST: {}, FUTURE: {}, STATIC: {}}
    expected, columns, fixed = [], [], []
    for each, kind in zip(known.future, future, strict=True):
        items, numbers = draw(data, kind, rows + ahead)
        expected.append(numbers)
        if data.draw(st.booleans()):
            entry[PAST][each.name], entry[FUTURE][each.name] = items[:rows], items[rows:]
        else:
            entry[FUTURE][each.name] = items
    for each, kind in zip(known.past, past, strict=True):
        items, numbers = draw(data, kind, rows)
        entry[PAST][each.name] = items
        codes_of = range(3) if len(each.channels) > 1 else [None]
        columns += [
            [float(n == code) if code is not None else n for n in numbers] for code in codes_of
        ]
    for each, kind in zip(known.static, static, strict=True):
        (entry[STATIC][each.name],), numbers = draw(data, kind, 1)
        fixed += numbers
    if not by_name:
        entry["series"] = np.transpose([*columns, load]).tolist()
        for each in known.past:
            del entry[PAST][each.name]
    # Their order is the client's.
    entry = {
        name: dict(reversed(part.items())) if isinstance(part, dict) else part
        for name, part in entry.items()
    }
    envelope, ignored = parse(json.dumps(body("weather", entry, horizon=steps)).encode())
    model = SimpleNamespace(manifest=manifest, name="weather")
    found = decode(envelope, ignored, model, SETTINGS)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.history[0].T, np.array([*columns, load])[:, -context:])
    if future:
        assert found.covariates is not None
        np.testing.assert_array_equal(found.covariates[0].T, np.array(expected)[:, before:])
    if static:
        assert found.static is not None
        np.testing.assert_array_equal(found.static, [fixed])
    assert (found.covariates is None, found.static is None) == (not future, not static)
