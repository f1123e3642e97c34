from __future__ import annotations

from typing import Any

import pytest

from service.schemas import ForecastRequest
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


def test_the_door_names_its_body_and_every_status(document: dict[str, Any]) -> None:
    for path in ("/forecast", "/v1/timeseries/forecast"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["required"]
        assert set(operation["responses"]) == {
            *("200", "400", "404", "413", "422", "429", "503", "504")
        }


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(set(names)) == len(names)


def test_the_example_is_a_request() -> None:
    (example,) = ForecastRequest.model_config["json_schema_extra"]["examples"]  # type: ignore[index,call-overload]
    ForecastRequest.model_validate(example)


def test_series_are_numbers_or_rows_of_numbers(document: dict[str, Any]) -> None:
    series = document["components"]["schemas"]["SeriesInput"]["properties"]["series"]
    assert [shape["items"]["type"] for shape in series["anyOf"]] == [["number", "null"], "array"]
