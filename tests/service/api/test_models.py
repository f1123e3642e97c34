from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell.bundle import layout
from foretell.bundle.distribution import Distribution
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import Accuracy, CalibrationReport, TestResult
from foretell.bundle.scaler import Scaler
from foretell.service.api.cards import ModelCard, ModelReport
from foretell.service.engine.intervals import Intervals
from foretell.service.errors import StartError
from foretell.service.forecast.answers import ModelExample
from foretell.service.http import compression
from foretell.service.http.compression import compress
from tests.service.client import Client
from tests.service.forecast.shops import SHOP, STALL
from tests.support.bundles import Spec, write_bundle

SPECS = (
    Spec("one", example=9),
    Spec("some", channels=("load", "wind"), targets=("wind",), with_calendar=True, example=20),
    Spec("monthly", frequency="MS", horizon=12, with_calendar=True, example=8),
    Spec("bare"),
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for spec in SPECS:
        write_bundle(tmp_path, spec)
    return tmp_path


@pytest.fixture
def served(repository: Path) -> Iterator[Client]:
    with Client(repository) as client:
        yield client


@pytest.mark.parametrize(
    ("described", "windows", "levels"),
    [
        (None, None, None),
        (None, (99, 49), (0.01, 0.99)),
        (Distribution.of("normal"), None, (1e-6, 1 - 1e-6)),
        (Distribution.of_quantiles((0.1, 0.5, 0.8)), None, (0.1, 0.8)),
        # Calibrated quantiles take precedence.
        (Distribution.of("normal"), (19,), (0.05, 0.95)),
    ],
)
def test_quantile_levels_of_a_card(
    described: Distribution | None,
    windows: tuple[int, ...] | None,
    levels: tuple[float, float] | None,
) -> None:
    report = windows and CalibrationReport.model_construct(windows=windows, floor=0.1, steps=4)
    manifest = Manifest.model_construct(
        name="one", horizon=4, channels=("load",), calibration=report, distribution=described
    )
    manifest = manifest.model_copy(update={"scaler": Scaler(mean=(0.0,), std=(1.0,))})
    intervals = Intervals(manifest, None)
    assert (intervals.extremes(1) if intervals.steps else None) == levels
    if levels is not None:
        # Requests may have the levels that the card lists.
        intervals.check(levels, 4, "options.quantiles")


def test_card_has_the_levels_of_the_first_pass(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec("bare"))
    path = write_bundle(tmp_path, Spec("quant", calibrated=2)) / layout.MANIFEST
    written = json.loads(path.read_text())
    written["calibration"]["windows"] = [99, 49]
    path.write_text(json.dumps(written))
    with Client(tmp_path) as client:
        cards = [client.get(f"/models/{name}").json() for name in ("bare", "quant")]
    assert [card["quantiles"] for card in cards] == [False, True]
    assert [card["quantile_levels"] for card in cards] == [None, [0.01, 0.99]]


@pytest.mark.parametrize("spec", SPECS[:3], ids=lambda spec: spec.name)
def test_example_is_a_request_and_actual_values(served: Client, spec: Spec) -> None:
    answer = served.get(f"/models/{spec.name}/example")
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    ModelExample.model_validate(found)
    [series] = found["request"]["inputs"]
    assert len(series["timestamps"]) == len(series["series"]) == spec.example
    assert series["series"][-1] == [spec.example * scale for scale in spec.scale]
    assert (series["name"], series["frequency"]) == ("a house", spec.frequency)
    assert found["model"] == f"{spec.name}@1"
    assert found["channels"] == series["channels"] == list(spec.channels)
    assert found["targets"] == list(spec.targets or spec.channels)
    first = [(spec.example + 1) * spec.scale[column] for column in spec.columns]
    assert found["actual"][0] == first
    forecast = served.first(found["request"])
    assert len(forecast["timestamps"]) == len(found["actual"]) == spec.horizon
    assert len(found["actual"][0]) == len(spec.columns)


def test_answers_are_written_and_compressed_off_the_loop(
    served: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(encoding: str, parts: list[bytes]) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return compress(encoding, parts)

    monkeypatch.setattr(compression, "compress", note)
    for path in ("/models/one/example", "/models", "/metrics"):
        answer = served.request("GET", path, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in answer.headers["vary"]
        plain = served.request("GET", path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        if path != "/metrics":
            assert plain.json() == answer.json()


def test_cards_have_the_flag_example(served: Client) -> None:
    cards = {card["name"]: card["example"] for card in served.get("/models").json()}
    assert cards == {"one": True, "some": True, "monthly": True, "bare": False}
    assert served.get("/models/one@1").json()["example"]
    answer = served.get("/models/bare/example")
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (404, "no_example")
    assert error["message"].startswith("bare@1 carries no example")
    assert served.get("/models/nope/example").json()["error"]["type"] == "unknown_model"


def test_damaged_example_is_refused_and_later_changes_are_not_read(
    served: Client, repository: Path
) -> None:
    before = served.get("/models/one/example").json()
    file = repository / "one" / "1" / layout.EXAMPLE
    data = bytearray(file.read_bytes())
    # A byte of the compressed data.
    data[80] ^= 0xFF
    file.write_bytes(data)
    assert served.get("/models/one/example").json() == before
    with Client(repository) as client:
        assert "example.npz: sha256 differs" in client.get("/readyz").json()["models"]["one@1"]
    # Seven rows are fewer than the context.
    write_bundle(repository / "other", Spec(example=7))
    message = "example.npz: timestamps: expected 8 rows or more"
    with pytest.raises(StartError, match=message), Client(repository / "other"):
        pass


def test_card_has_verdict_and_reason_of_missing_quantiles(tmp_path: Path) -> None:
    test = TestResult(windows=9, model=Accuracy(mse=1, mae=0.5), last_value=Accuracy(mse=1, mae=1))
    reason = "its validation split holds 4 windows, a calibration needs at least 20"
    write_bundle(tmp_path, Spec(changes={"test": test, "calibration_missing": reason}))
    with Client(tmp_path) as client:
        expected = (
            "better in MAE alone than repeating the last value (MSE 1 against 1, MAE 0.5 against 1)"
        )
        assert client.get("/models").json()[0]["verdict"] == expected
        report = client.get("/models/repeat").json()
        assert (report["verdict"], report["calibration_missing"]) == (expected, reason)
        body = {"inputs": [{"series": [1.0] * 8}], "options": {"quantiles": [0.5]}}
        assert client.error(body)["message"] == f"repeat has no quantiles: {reason}"


def test_report_of_a_model(client: Client) -> None:
    cards = {card["name"]: card for card in client.get("/models").json()}
    report = client.get("/models/multi").json()
    assert set(report) == set(ModelReport.model_fields)
    assert report.items() >= cards["multi"].items()
    assert report["calibration"] is None
    assert report["calibration_missing"] is None
    assert report["verdict"] is None
    assert client.get("/models/calibrated").json()["calibration"]["steps"] == 12
    for reference, version in (("repeat", "10"), ("repeat@1", "1")):
        assert client.get(f"/models/{reference}").json()["version"] == version
    for reference, kind in (("nope", "unknown_model"), ("repeat@3", "unknown_version")):
        answer = client.get(f"/models/{reference}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, kind)


def test_example_with_covariates_is_a_request(tmp_path: Path) -> None:
    write_bundle(tmp_path, replace(SHOP, example=30))
    with Client(tmp_path) as client:
        found = client.get("/models/shop/example").json()
        [series] = found["request"]["inputs"]
        assert len(series["future_covariates"]["sky"]) == 30 + SHOP.horizon
        assert series["static_covariates"]["region"] == "north"
        assert len(client.first(found["request"])["timestamps"]) == SHOP.horizon


def test_card_lists_covariates(tmp_path: Path) -> None:
    for spec in (SHOP, STALL, Spec("bare")):
        write_bundle(tmp_path, spec)
    with Client(tmp_path) as client:
        shop, stall, bare = (
            client.get(f"/models/{name}").json()["covariates"] for name in ("shop", "stall", "bare")
        )
    number: dict[str, Any] = {"type": "number", "categories": [], "other": False}
    assert shop == {
        "future": [
            {"name": "price", **number},
            {"name": "open", **number, "type": "boolean"},
            {
                "name": "sky",
                "type": "category",
                "categories": ["clear", "rain", "snow"],
                "other": False,
            },
        ],
        "past": [],
        "static": [
            {
                "name": "region",
                "type": "category",
                "categories": ["north", "south"],
                "other": True,
            },
            {"name": "size", **number},
        ],
    }
    # Channels that are read and not forecast are past covariates.
    assert stall == {"future": [], "past": [{"name": "visits", **number}], "static": []}
    assert bare == {"future": [], "past": [], "static": []}


def test_card_of_a_model(client: Client) -> None:
    cards = {card["name"]: card for card in client.get("/models").json()}
    multi = cards["multi"]
    assert multi["channels"] == ["load", "wind"]
    assert (multi["context"], multi["horizon"], multi["max_horizon"]) == (8, 4, 16)
    assert multi["attention"] == ["encoder.0.self", "encoder.1.self", "decoder.0.cross"]
    assert multi["provider"] == "CPUExecutionProvider"
    assert (multi["frequency"], multi["needs_timestamps"]) == ("h", False)
    assert cards["calendar"]["needs_timestamps"]
    assert not multi["quantiles"]
    assert multi["quantile_levels"] is None
    assert cards["calibrated"]["quantiles"]
    lowest, highest = cards["calibrated"]["quantile_levels"]
    assert 0 < lowest < 0.1 < 0.9 < highest < 1
    assert cards["calibrated"]["bounds"] == {"load": {"low": None, "high": 1e6}}
    assert multi["bounds"] == {}
    assert cards["repeat"]["versions"] == ["1", "10"]
    assert cards["repeat"]["version"] == "10"
    for card in cards.values():
        assert set(card) == set(ModelCard.model_fields)
        assert len(json.dumps(card)) < 1000
