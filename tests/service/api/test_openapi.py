from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from foretell.service.api import openapi
from foretell.service.forecast.requests import ForecastRequest
from foretell.service.http.body import JSON
from foretell.service.http.middleware import OPEN
from tests.service.client import Client


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(references(value) for value in node))
    return set()


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/openapi.json").json()
    return answer


def test_every_reference_resolves(document: dict[str, Any]) -> None:
    found = references(document)
    assert "#/components/schemas/ForecastRequest" in found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_a_route_names_its_body_and_every_status(document: dict[str, Any]) -> None:
    for path in ("/forecast", "/v1/timeseries/forecast"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["required"]
        assert set(operation["responses"]) == {
            *("200", "400", "404", "408", "413", "415", "422", "429", "503", "504")
        }


def test_whatever_reads_a_body_names_what_may_be_wrong_with_it(document: dict[str, Any]) -> None:
    for path, operation in operations(document):
        named = operation["responses"].keys() & {"400", "401", "408", "413", "415"}
        expected = {"400", "408", "413", "415"} if "requestBody" in operation else set()
        # Those that change models take keys of their own.
        assert named - {"401"} == expected, path
        assert ("401" in named) == path.endswith(("/load", "/unload")), path


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(set(names)) == len(names)


def shown(node: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Every schema with an example of it: of a body, of a parameter, or its own."""
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


def test_every_example_is_what_its_schema_says(document: dict[str, Any]) -> None:
    found = list(shown(document))
    assert len(found) > 100
    for schema, example in found:
        whole = {**schema, "components": document["components"]}
        jsonschema_rs.validate(whole, example)


def test_a_wrong_example_would_be_found(document: dict[str, Any]) -> None:
    document["paths"]["/forecast"]["post"]["responses"]["404"]["content"][JSON]["example"] = {}
    with pytest.raises(jsonschema_rs.ValidationError):
        test_every_example_is_what_its_schema_says(document)


def test_statistics_say_what_is_always_sent(document: dict[str, Any]) -> None:
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
                    # A server that is not ready answers all the same.
                    assert kind in {"Status", "ServerHealth"}


def test_the_document_is_there_without_examples_too(
    monkeypatch: pytest.MonkeyPatch, models: Path
) -> None:
    nothing: dict[str, Any] = {table: {} for table in openapi.examples()}
    monkeypatch.setattr(openapi, "examples", lambda: nothing)
    with Client(models) as client:
        answer = client.get("/openapi.json")
    assert answer.status_code == 200
    assert "/forecast" in answer.json()["paths"]


def test_it_is_written_beside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time takes half a second, and whoever forecasts would wait."""
    threads: list[threading.Thread] = []
    plain = client.app.openapi

    def slow() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return plain()

    monkeypatch.setattr(client.app, "openapi", slow)
    assert client.get("/openapi.json").json() == plain()
    assert threads
    assert threading.main_thread() not in threads


def test_the_window_that_is_shown_can_be_asked_for(document: dict[str, Any]) -> None:
    answer = document["paths"]["/models/{model}/example"]["get"]["responses"]["200"]
    example = answer["content"][JSON]["example"]
    (series,) = ForecastRequest.model_validate(example["request"]).inputs
    assert series.channels == example["channels"]
    assert {len(row) for row in example["actual"]} == {len(example["targets"])}


def test_series_are_numbers_or_rows_of_numbers(document: dict[str, Any]) -> None:
    series = document["components"]["schemas"]["SeriesInput"]["properties"]["series"]
    assert [shape["items"]["type"] for shape in series["anyOf"]] == [["number", "null"], "array"]


def test_keys_are_named_where_they_are_asked_for(document: dict[str, Any], models: Path) -> None:
    assert "security" not in document
    with Client(models, api_keys="one") as client:
        guarded = client.get("/openapi.json").json()
    names = {name for needed in guarded["security"] for name in needed}
    assert names == guarded["components"]["securitySchemes"].keys() == {"bearer", "key"}
    for path, operation in operations(guarded):
        is_open = operation.get("security") == []
        assert is_open == (path in OPEN)
        assert is_open != ("401" in operation["responses"])
    test_every_example_is_what_its_schema_says(guarded)
