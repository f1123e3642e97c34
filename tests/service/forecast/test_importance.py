"""`options.importance`: how far forecasts move with channels and covariates replaced."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.scaler import Scaler
from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.importance import replacements
from foretell.service.forecast.job import decode
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.parse import JsonCodec, parse
from foretell.service.http.body import ALWAYS
from tests.service.client import Client, request_of
from tests.service.forecast.bodies import EIGHT, PAIRS, request_body, submitted
from tests.service.forecast.shops import (
    HORIZON,
    KIOSK,
    OPEN,
    REGION,
    SHOP,
    SIZE,
    STALL,
    kiosk,
    models,
    server,
    shop,
)
from tests.service.forecast.test_scenarios import changes
from tests.support.bundles import Spec, write_bundle

__all__ = ["models", "server"]

FUTURE, PAST, STATIC = "future_covariates", "past_covariates", "static_covariates"
# A bundle that does not know the means of its training rows.
UNKNOWN = Spec(
    name="unknown",
    channels=("load", "wind"),
    changes={"scaler": Scaler.identity(2)},
)
SERVED = (SHOP, KIOSK, STALL, UNKNOWN, Spec(name="plain", calibrated=1))


def forecasts(client: Client, model: str, *inputs: Any, **options: Any) -> list[dict[str, Any]]:
    answer = client.forecast(request_body(*inputs, model=model, options=options))
    assert answer.status_code == 200, answer.text
    ForecastResponse.model_validate(answer.json())
    return [output["content"][0] for output in answer.json()["outputs"]]


def changed(entry: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    entry = copy.deepcopy(entry)
    change(entry)
    return entry


def all_of(place: str, name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(entry: dict[str, Any]) -> None:
        found = entry[place][name]
        entry[place][name] = [value] * len(found) if isinstance(found, list) else value

    return change


def column(number: int, value: float) -> Callable[[dict[str, Any]], object]:
    def change(entry: dict[str, Any]) -> None:
        for row in entry["series"]:
            row[number] = value

    return change


OF_SHOP: dict[tuple[str, str], list[Callable[[dict[str, Any]], object]]] = {
    ("sales", "channel"): [column(0, 0.0)],
    ("returns", "channel"): [column(1, 0.0)],
    ("price", "future"): [all_of(FUTURE, "price", 10.0)],
    ("open", "future"): [all_of(FUTURE, "open", value) for value in (False, True)],
    ("sky", "future"): [all_of(FUTURE, "sky", value) for value in ("clear", "rain", "snow")],
    ("region", "static"): [all_of(STATIC, "region", value) for value in ("north", "south")],
    # Its training mean is not known, and one value has no other mean.
    ("size", "static"): [],
}


@pytest.mark.parametrize(
    "options",
    [{}, {"horizon": 3}, {"horizon": 9}, {"quantiles": [0.5], "attention": True}],
    ids=str,
)
def test_changes_are_those_of_requests_with_replaced_values(
    server: Client, options: dict[str, Any]
) -> None:
    ahead = -(-options.get("horizon", HORIZON) // HORIZON) * HORIZON
    inputs = [shop(rows=10 + n, ahead=ahead, shift=n) for n in range(2)]
    bad = {"series": [1]}
    answer = server.forecast(
        request_body(
            inputs[0], bad, inputs[1], model="shop", options={**options, "importance": True}
        )
    ).json()
    outputs = [answer["outputs"][0], answer["outputs"][2]]
    for entry, output in zip(inputs, outputs, strict=True):
        (found,) = output["content"]
        base = np.array(found["mean_forecast"])
        assert [(each["name"], each["kind"]) for each in found["importance"]] == [*OF_SHOP]
        for each, variants in zip(found["importance"], OF_SHOP.values(), strict=True):
            moved = [
                forecasts(server, "shop", changed(entry, change), **options)[0]["mean_forecast"]
                for change in variants
            ]
            if not moved:
                assert each["change"] == each["relative"] == [None, None]
                continue
            change = np.abs(np.array(moved) - base).mean(axis=(0, 1))
            np.testing.assert_allclose(each["change"], change, rtol=1e-3, atol=1e-4)
            # The deviation of the training rows is 2.
            np.testing.assert_allclose(each["relative"], change / 2, rtol=1e-3, atol=1e-4)


def test_past_covariates_are_replaced_in_all_of_their_channels(server: Client) -> None:
    """This model reads none of them, but the number of its channel."""
    (found,) = forecasts(server, "kiosk", kiosk(), importance=True)
    shown = [(each["name"], each["kind"]) for each in found["importance"]]
    assert shown == [
        ("sales", "channel"),
        ("staff", "past"),
        ("sale", "past"),
        ("visits", "past"),
        ("price", "future"),
    ]
    changes_of = {each["name"]: each["change"] for each in found["importance"]}
    assert changes_of["sales"] > 0
    assert changes_of["price"] > 0
    assert {changes_of[name] for name in ("staff", "sale", "visits")} == {0.0}


def test_codes_of_replacements(server: Client) -> None:
    known = {
        each.name: each for each in replacements(server.repository.registry.find("kiosk").manifest)
    }
    assert (known["staff"].columns, known["staff"].codes.tolist()) == ([2, 3], [[1, 0], [0, 1]])
    assert (known["sale"].columns, known["sale"].codes.tolist()) == ([4], [[0], [1]])
    assert (known["visits"].columns, known["visits"].codes.tolist()) == ([0], [[0]])
    request = request_body(kiosk(), model="kiosk", options={"importance": True})
    envelope, ignored = parse(json.dumps(request).encode())
    model = server.repository.registry.find("kiosk")
    job = decode(envelope, ignored, model, server.settings)
    assert job.replaced is not None
    for number, (columns, codes) in enumerate(
        [([1], [0]), ([2, 3], [1, 0]), ([2, 3], [0, 1]), ([4], [0]), ([4], [1]), ([0], [0])]
    ):
        expected = job.history[0].copy()
        expected[:, columns] = codes
        np.testing.assert_array_equal(job.replaced.history[number], expected)
        assert job.replaced.covariates is not None
        np.testing.assert_array_equal(job.replaced.covariates[number], job.covariates[0])
    assert (job.replaced.covariates[6] == 10).all()
    np.testing.assert_array_equal(job.replaced.history[6], job.history[0])
    np.testing.assert_array_equal(job.replaced.calendar[6], job.calendar[0])


def test_means_of_the_window_where_the_bundle_has_no_others(server: Client) -> None:
    (found,) = forecasts(server, "unknown", {"series": PAIRS}, importance=True)
    last, mean = np.array(PAIRS)[-1], np.mean(PAIRS, axis=0)
    sizes = np.abs(last - mean) * UNKNOWN.scale
    assert found["importance"] == [
        {"name": "load", "kind": "channel", "change": [sizes[0], 0.0], "relative": [None, None]},
        {"name": "wind", "kind": "channel", "change": [0.0, sizes[1]], "relative": [None, None]},
    ]
    # In the order of the input's columns.
    swapped = {"series": [row[::-1] for row in PAIRS], "channels": ["wind", "load"]}
    (found,) = forecasts(server, "unknown", swapped, importance=True)
    assert found["importance"][0]["change"] == [0.0, sizes[0]]


def test_covariates_without_training_means(tmp_path: Path) -> None:
    """Adopted models scale covariates by themselves."""
    unscaled = Covariate(name="price")
    covariates = Covariates(future=(unscaled, OPEN), static=(REGION, SIZE))
    scaler = Scaler(mean=(0.0, 5.0), std=(1.0, 2.0))
    spec = replace(SHOP, name="adopted", covariates=covariates, changes={"scaler": scaler})
    write_bundle(tmp_path, spec)
    entry = shop()
    del entry[FUTURE]["sky"]
    with Client(tmp_path) as client:
        request = request_body(entry, model="adopted", options={"importance": True})
        answer = client.forecast(request).json()
        (found,) = answer["outputs"][0]["content"]
        mean = sum(entry[FUTURE]["price"]) / len(entry[FUTURE]["price"])
        other = changed(entry, all_of(FUTURE, "price", mean))
        moved = forecasts(client, "adopted", other)[0]["mean_forecast"]
    known = {each["name"]: each for each in found["importance"]}
    change = np.abs(np.array(moved) - found["mean_forecast"]).mean(axis=0)
    np.testing.assert_allclose(known["price"]["change"], change, rtol=1e-3)
    # The deviation of one target is known.
    assert known["price"]["relative"] == [None, pytest.approx(change[1] / 2, rel=1e-3)]
    assert known["size"]["change"] == [None, None]
    warnings = [each for each in answer["warnings"] if each["type"] == "window_mean"]
    assert [each["param"] for each in warnings] == ["options.importance"] * 2
    assert [each["message"].partition(":")[0] for each in warnings] == [
        f"the bundle has no training mean of {names}" for names in ("sales, price", "size")
    ]


def test_training_means_of_zero_are_known(tmp_path: Path) -> None:
    zero = Covariate(name="price", mean=0.0), Covariate(name="size", mean=0.0)
    covariates = Covariates(future=zero[:1], static=zero[1:])
    write_bundle(tmp_path, replace(SHOP, name="zero", covariates=covariates))
    entry = shop()
    entry[FUTURE] = {"price": entry[FUTURE]["price"]}
    entry[STATIC] = {"size": 2.5}
    with Client(tmp_path) as client:
        request = request_body(entry, model="zero", options={"importance": True})
        answer = client.forecast(request).json()
        moved = forecasts(client, "zero", changed(entry, all_of(FUTURE, "price", 0.0)))
    assert "window_mean" not in [each["type"] for each in answer.get("warnings", [])]
    (found,) = answer["outputs"][0]["content"]
    known = {each["name"]: each["change"] for each in found["importance"]}
    change = np.abs(np.array(moved[0]["mean_forecast"]) - found["mean_forecast"]).mean(axis=0)
    np.testing.assert_allclose(known["price"], change, rtol=1e-3)
    assert None not in known["size"]


def test_one_channel_has_one_number(server: Client) -> None:
    (found,) = forecasts(server, "plain", {"series": EIGHT}, importance=True)
    expected = {"name": "load", "kind": "channel", "change": 7.0, "relative": 3.5}
    assert found["importance"] == [expected]
    (plain,) = forecasts(server, "plain", {"series": EIGHT})
    assert "importance" not in plain
    assert "importance" not in forecasts(server, "plain", {"series": EIGHT}, importance=False)[0]


def test_masked_gaps_are_replaced_with_the_rest(server: Client) -> None:
    rows = [[1.0, 2.0]] * 6 + [[None, 2.0], [3.0, 2.0]]
    (found,) = forecasts(server, "stall", {"series": rows}, missing="mask", importance=True)
    assert found["masked"] == {"sales": 1}
    assert [each["change"] for each in found["importance"]] == [[3.0], [0.0]]


def test_with_scenarios_it_is_of_the_first(server: Client) -> None:
    plain, entry = shop(), {**shop(), "scenarios": changes(4)}
    found = forecasts(server, "shop", entry, shop(shift=1), importance=True)
    alone = forecasts(server, "shop", plain, importance=True)[0]
    for each, own in zip(found[0]["importance"], alone["importance"], strict=True):
        np.testing.assert_allclose(*(np.float64(one["change"]) for one in (each, own)), rtol=1e-5)
    assert len(found[0]["scenarios"]) == 4
    own = forecasts(server, "shop", shop(shift=1), importance=True)[0]
    for each, expected in zip(found[1]["importance"], own["importance"], strict=True):
        np.testing.assert_allclose(
            *(np.float64(one["change"]) for one in (each, expected)), rtol=1e-5
        )


def test_with_quantiles_corrected_by_the_history(server: Client) -> None:
    options = {"quantiles": [0.1, 0.9], "calibration": "history"}
    (plain,) = forecasts(server, "shop", shop(rows=60), **options)
    (found,) = forecasts(server, "shop", shop(rows=60), **options, importance=True)
    assert len(found.pop("importance")) == 7
    assert found == plain


def test_replacements_run_beside_the_request(server: Client) -> None:
    with submitted(server, "shop") as runs:
        forecasts(server, "shop", shop(), shop(shift=1), importance=True)
    assert runs == [2, 2 * sum(map(len, OF_SHOP.values()))]


@pytest.mark.parametrize(
    ("settings", "room"), [({"max_origins": 19}, 19), ({"max_queue": 21, "max_inputs": 4}, 19)]
)
def test_room_for_replacements_is_limited(
    models: Path, settings: dict[str, Any], room: int
) -> None:
    with Client(models, **settings) as client:
        request = request_body(shop(), shop(shift=1), model="shop", options={"importance": True})
        error = client.error(request)
        assert error["param"] == "options.importance"
        message = f"2 inputs take 10 more forecasts each, and there is room for {room} in all (max_"
        assert error["message"].startswith(message)
        assert error["message"].endswith("; send fewer inputs")
        request["inputs"].pop()
        assert client.forecast(request).status_code == 200


def test_remedies_without_room_for_replacements(models: Path) -> None:
    request = request_body(shop(), model="shop", options={"importance": True})
    with Client(models, max_origins=9) as client:
        for inputs in ([shop()], [shop(), shop(shift=1)]):
            message = client.error({**request, "inputs": inputs})["message"]
            assert message.endswith("; leave it out, or raise the server's limits")
    with Client(models, max_queue=12, max_inputs=4) as client:
        assert client.forecast(request).status_code == 200
        request["inputs"][0]["scenarios"] = changes(3)
        assert client.error(request)["message"].endswith("; send fewer scenarios")


@pytest.mark.parametrize(
    ("inputs", "queue", "others"),
    [
        ([shop(60)], 15, ""),
        ([{**shop(60), "scenarios": changes(3)}], 15, ", or send fewer scenarios"),
        ([shop(60), shop(60, shift=1)], 26, ", or send fewer inputs"),
    ],
)
def test_origins_of_the_history_leave_room_to_replacements(
    models: Path, inputs: list[dict[str, Any]], queue: int, others: str
) -> None:
    options = {"quantiles": [0.1], "calibration": "history", "importance": True}
    with Client(models, max_queue=queue, max_inputs=4) as client:
        message = client.error(request_body(*inputs, model="shop", options=options))["message"]
        assert message.startswith(("1 input takes 10 more forecasts,", "2 inputs take 10 more "))
        assert message.endswith(f"; set options.calibration to 'stored'{others}")
        options["calibration"] = "stored"
        answer = client.forecast(request_body(*inputs, model="shop", options=options))
        assert answer.status_code == 200


@pytest.mark.parametrize("value", [1, "true", {}])
def test_option_is_a_boolean(server: Client, value: Any) -> None:
    request = request_body({"series": EIGHT}, model="plain", options={"importance": value})
    error = server.error(request)
    assert error["param"] == "options.importance"
    assert error["message"].startswith("expected true or false")


def test_windows_are_not_cut_on_the_event_loop(server: Client) -> None:
    request = request_body({"series": EIGHT}, model="plain", options={"importance": True})
    codec = JsonCodec(FORECASTING, server.settings)
    assert codec.parse(json.dumps(request).encode(), request_of()).work == ALWAYS
