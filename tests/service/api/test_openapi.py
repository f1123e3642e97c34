"""The OpenAPI document and its examples."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from foretell.service import errors
from foretell.service.api import openapi
from foretell.service.forecast.actuals_types import ActualsRequest, ActualsResponse
from foretell.service.forecast.answers import BacktestResponse, ForecastResponse, ModelExample
from foretell.service.forecast.requests import BacktestRequest, ForecastRequest, TableOptions
from foretell.service.http.body import JSON
from foretell.service.http.middleware import OPEN
from foretell.service.inference.wire import ChangeRequest, IndexRequest, InferRequest
from tests.service.client import Client


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/openapi.json").json()
    return answer


def test_every_reference_resolves(client: Client, document: dict[str, Any]) -> None:
    found = re.findall(r'"#/components/schemas/(\w+)"', client.get("/openapi.json").text)
    assert "ForecastRequest" in found
    assert set(found) <= document["components"]["schemas"].keys()


def test_operations_name_their_errors(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, operation in operations(document):
        named = operation["responses"].keys() & {"400", "401", "408", "413", "415"}
        expected = {"400", "408", "413", "415"} if "requestBody" in operation else set()
        # Routes that change models need admin keys.
        assert named - {"401"} == expected, path
        assert ("401" in named) == path.endswith(("/load", "/unload")), path
    for path in ("/forecast", "/v1/timeseries/forecast"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["required"]
        assert operation["responses"].keys() >= {"200", "404", "422", "429", "503", "504"}


def shown(node: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Schemas and their examples: of bodies, of parameters, and within schemas."""
    if isinstance(node, dict):
        if "schema" in node:
            yield from ((node["schema"], one["value"]) for one in node.get("examples", {}).values())
            yield from ((node["schema"], node[name]) for name in ("example",) if name in node)
        elif isinstance(node.get("examples"), list):
            yield from ((node, example) for example in node["examples"])
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from shown(part)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        yield from ((path, operation) for operation in methods.values())


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    found = list(shown(document))
    assert len(found) > 100
    for schema, example in found:
        whole = {**schema, "components": document["components"]}
        jsonschema_rs.validate(whole, example)


def test_statistics_list_their_required_fields(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    stages = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output"]
    assert schemas["InferenceStatistics"]["required"] == stages
    assert schemas["ModelStatistics"]["required"] == [
        *("name", "version", "last_inference", "inference_count", "execution_count"),
        "inference_stats",
    ]


def test_every_route_shows_requests_and_errors(document: dict[str, Any]) -> None:
    for path, operation in operations(document):
        assert all("example" in parameter for parameter in operation.get("parameters", ()))
        if "requestBody" in operation:
            assert operation["requestBody"]["content"][JSON]["examples"], path
        for status, answer in operation["responses"].items():
            if status < "400" or "content" not in answer:
                continue
            found = answer["content"][JSON]
            match found["schema"]["$ref"].rpartition("/")[2]:
                case "ErrorResponse":
                    assert found["example"]["error"]["code"] == status
                case "InferenceError":
                    assert isinstance(found["example"]["error"], str)
                case kind:
                    # These bodies have status 503 too, if the server is not ready.
                    assert kind in {"Status", "ServerHealth"}


def test_document_is_there_without_examples_too(
    monkeypatch: pytest.MonkeyPatch, models: Path
) -> None:
    nothing: dict[str, Any] = {table: {} for table in openapi.examples()}
    monkeypatch.setattr(openapi, "examples", lambda: nothing)
    with Client(models) as client:
        answer = client.get("/openapi.json")
    assert answer.status_code == 200
    assert "/forecast" in answer.json()["paths"]


def test_document_is_written_off_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time takes half a second, and forecasts would wait."""
    threads: list[threading.Thread] = []
    plain = client.app.openapi

    def slow() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return plain()

    monkeypatch.setattr(client.app, "openapi", slow)
    assert client.get("/openapi.json").json() == plain()
    assert threads
    assert threading.main_thread() not in threads


def test_example_of_the_document_is_a_valid_request(document: dict[str, Any]) -> None:
    answer = document["paths"]["/models/{model}/example"]["get"]["responses"]["200"]
    example = answer["content"][JSON]["example"]
    (series,) = ForecastRequest.model_validate(example["request"]).inputs
    assert series.channels == example["channels"]
    assert {len(row) for row in example["actual"]} == {len(example["targets"])}


def test_series_are_numbers_or_rows_of_numbers(document: dict[str, Any]) -> None:
    series = document["components"]["schemas"]["SeriesInput"]["properties"]["series"]
    assert [shape["items"]["type"] for shape in series["anyOf"]] == [["number", "null"], "array"]


def test_document_lists_keys_where_required(document: dict[str, Any], models: Path) -> None:
    assert "security" not in document
    with Client(models, api_keys="one") as client:
        guarded = client.get("/openapi.json").json()
    names = {name for needed in guarded["security"] for name in needed}
    assert names == guarded["components"]["securitySchemes"].keys() == {"bearer", "key"}
    for path, operation in operations(guarded):
        is_open = operation.get("security") == []
        assert is_open == (path in OPEN)
        assert is_open != ({"401", "403"} <= operation["responses"].keys())
    assert "FORETELL_API_KEYS" in refused_example(guarded, "/forecast")["error"]["message"]
    load = refused_example(guarded, "/v2/repository/models/{model}/load")
    assert "may not load or unload" in load["error"]
    test_every_example_fits_its_schema(guarded)


def refused_example(document: dict[str, Any], path: str) -> Any:
    return document["paths"][path]["post"]["responses"]["403"]["content"][JSON]["example"]


EXAMPLES = openapi.examples()


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        *(
            (kind, EXAMPLES["requests"][word].values())
            for word, kind in {
                "forecast": ForecastRequest,
                "backtest": BacktestRequest,
                "actuals": ActualsRequest,
                "infer": InferRequest,
                "index": IndexRequest,
                "load": ChangeRequest,
                "unload": ChangeRequest,
            }.items()
        ),
        (ForecastResponse, [EXAMPLES["answers"]["forecast"]]),
        (BacktestResponse, [EXAMPLES["answers"]["backtest"]]),
        (ActualsResponse, [EXAMPLES["answers"]["actuals"]]),
        (ModelExample, [EXAMPLES["answers"]["example"]]),
        (TableOptions, [EXAMPLES["parameters"]]),
    ],
)
def test_examples_are_valid(kind: type[BaseModel], found: Iterable[Any]) -> None:
    assert found
    for example in found:
        kind.model_validate(example)


def test_examples_of_errors_are_real_errors() -> None:
    statuses = {name: kind.status for name, kind in errors.ServiceError._types.items()}
    for status, error in EXAMPLES["errors"].items():
        assert statuses[error["type"]] == int(status)
    for error in EXAMPLES["invalid"].values():
        assert statuses[error["type"]] == 422
