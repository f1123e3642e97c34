"""Names that are nearly right, made from the OpenAPI document: no route takes them silently."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.routes import ARROW
from tests.service.client import Client

Path_ = tuple[str | int, ...]
Document = dict[str, Any]

EIGHT = [0.1 * n for n in range(8)]
FORECASTS = ("/forecast", "/v1/timeseries/forecast")
INFERENCES = ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer")
CONTROLS = (
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
)
TENSOR = {"name": "history", "shape": [1, 8, 1], "datatype": "FP32", "data": EIGHT}
# Requests that are answered without a warning; what is put into them is what is wrong.
BASES: dict[str, Document] = {
    **{path: {"model": "repeat", "inputs": [{"series": EIGHT}]} for path in FORECASTS},
    "/backtest": {"model": "repeat", "inputs": [{"series": EIGHT * 2}]},
    **{path: {"inputs": [TENSOR], "outputs": [{"name": "forecast"}]} for path in INFERENCES},
    **{path: {} for path in CONTROLS},
}
TABLE = {
    "unique_id": ["x"] * 16,
    "ds": np.datetime64("2024-01-01", "us") + np.arange(16) * np.timedelta64(1, "h"),
    "load": EIGHT * 2,
}


class Mistake(NamedTuple):
    """A name where it is not known.

    Attributes:
        where: The object that it stands in.
        name: The name.
        certain: Whether it is so near that it must be refused.
    """

    where: Path_
    name: str
    certain: bool


def objects(document: Document, schema: Document, at: Path_ = ()) -> Iterator[tuple[Path_, set]]:
    """Every object of a body, and the names that it may have."""
    for branch in (schema, *schema.get("anyOf", ())):
        found = branch
        if "$ref" in branch:
            found = document["components"]["schemas"][branch["$ref"].rpartition("/")[2]]
        if "properties" in found:
            yield at, set(found["properties"])
        for name, inner in found.get("properties", {}).items():
            yield from objects(document, inner, (*at, name))
        if isinstance(found.get("items"), dict):
            yield from objects(document, found["items"], (*at, 0))


def edits(name: str) -> Iterator[tuple[str, bool]]:
    """The name written nearly right, and whether nobody could mistake it for another."""
    first, *others = name.split("_")
    yield name.upper(), True
    yield name.replace("_", "-").capitalize(), True
    yield first + "".join(map(str.capitalize, others)), True
    yield name.removesuffix("s") if name.endswith("s") else name + "s", True
    middle = len(name) // 2
    yield name[:middle] + name[middle + 1 :], False
    yield name[:middle] + "x" + name[middle + 1 :], False
    yield name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :], False


def mistakes(levels: dict[Path_, set[str]]) -> set[Mistake]:
    found = {
        Mistake(where, wrong, certain)
        for where, names in levels.items()
        for name in names
        for wrong, certain in edits(name)
    }
    found |= {
        Mistake(where, name, certain=True)
        for where in levels
        for name in set().union(*levels.values())
    }
    return {each for each in found if each.name not in levels[each.where]}


def placed(base: Document, mistake: Mistake) -> Document:
    """The request with the mistake in it."""
    body = copy.deepcopy(base)
    inner: Any = body
    for part in mistake.where:
        inner = inner[part] if isinstance(part, int) else inner.setdefault(part, {})
    inner[mistake.name] = 1
    return body


def ask(client: Client, path: str, body: Document) -> Any:
    path = path.format(model="repeat", version="1")
    return client.request("POST", path, json=body, headers={"X-API-Key": "secret"})


def named(answer: Any) -> list[str | None]:
    """The places that an answer is not silent about."""
    body = answer.json()
    if answer.status_code == 422:
        error = body["error"]
        return [error["param"] if isinstance(error, dict) else error.partition(": ")[0]]
    assert answer.status_code == 200, answer.text
    warnings = body.get("warnings", [])
    if isinstance(body, dict) and "warnings" in body.get("parameters", {}):
        warnings = json.loads(body["parameters"]["warnings"])
    return [warning["param"] for warning in warnings if warning["type"] == "ignored_field"]


@pytest.fixture(scope="module")
def client(models: Path) -> Iterator[Client]:
    with Client(models, admin_keys="secret") as client:
        yield client


@pytest.fixture(scope="module")
def document(client: Client) -> Document:
    found: Document = client.get("/openapi.json").json()
    return found


def of_the_body(document: Document, path: str) -> set[Mistake]:
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return mistakes(dict(objects(document, content["schema"])))


def of_the_url(document: Document, path: str = "/forecast") -> set[Mistake]:
    names = {each["name"] for each in document["paths"][path]["post"]["parameters"]}
    return mistakes({(): names})


def test_they_are_many(document: Document) -> None:
    for path in FORECASTS + INFERENCES:
        assert len(of_the_body(document, path)) > 100, path
    assert len(of_the_url(document)) > 20


@pytest.mark.parametrize("path", BASES)
def test_in_a_body(client: Client, document: Document, path: str) -> None:
    assert not path.startswith("/v2/models") or named(ask(client, path, BASES[path])) == []
    silent, unsure = [], []
    for mistake in of_the_body(document, path):
        answer = ask(client, path, placed(BASES[path], mistake))
        if not any(place and place.endswith(mistake.name) for place in named(answer)):
            silent.append(mistake)
        if mistake.certain and answer.status_code == 200:
            unsure.append(mistake)
    assert not silent
    assert not unsure


def test_in_the_url_of_a_request_in_json(client: Client, document: Document) -> None:
    names = {each["name"] for each in document["paths"]["/forecast"]["post"]["parameters"]}
    for name in names | {each.name for each in of_the_url(document)}:
        answer = ask(client, f"/forecast?{name}=1", BASES["/forecast"])
        assert named(answer) == [f"query.{name}"]
        assert answer.status_code == 422 or name not in names


def send(client: Client, columns: dict[str, Any], query: str = "", path: str = "/forecast") -> Any:
    body = write_table(pa.table(columns))
    return client.request(
        "POST", f"{path}?model=repeat{query}", content=body, headers={"Content-Type": ARROW}
    )


@pytest.mark.parametrize("path", ["/forecast", "/backtest"])
def test_in_the_url_of_a_table(client: Client, document: Document, path: str) -> None:
    assert send(client, TABLE, path=path).status_code == 200
    for mistake in of_the_url(document, path):
        answer = send(client, TABLE, f"&{mistake.name}=1", path)
        assert answer.status_code == 422, mistake
        assert mistake.name in answer.json()["error"]["message"]


@pytest.mark.parametrize("column", TABLE)
def test_in_the_columns_of_a_table(client: Client, column: str) -> None:
    for wrong in {wrong for wrong, _ in edits(column)} - TABLE.keys():
        renamed = {wrong if name == column else name: TABLE[name] for name in TABLE}
        answer = send(client, renamed)
        assert answer.status_code == 422, wrong
        assert wrong in json.dumps(answer.json())
        # Where what is meant is there too, the other one is to be left out.
        beside = send(client, {**TABLE, wrong: TABLE[column]})
        notes = json.loads(ipc.open_stream(beside.content).schema.metadata[b"foretell"])
        assert [each["message"] for each in notes["warnings"]] == [
            f"columns that are not read: {wrong}"
        ]
