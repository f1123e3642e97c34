"""Unknown names: similar ones to a known name are refused, others get a warning."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.forecast.warnings import AnswerWarning
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, request_body, table_of, warned
from tests.service.inference.bodies import infer, request, tensor

START = "2024-01-01T00:00:00"
EIGHT = [0.1 * n for n in range(8)]
MOMENTS = pa.array(np.datetime64(START, "us") + np.arange(8), pa.timestamp("us"))
Path_ = tuple[str | int, ...]
Document = dict[str, Any]
FORECASTS = ("/forecast", "/v1/timeseries/forecast")
INFERENCES = ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer")
CONTROLS = (
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
)
TENSOR = {"name": "history", "shape": [1, 8, 1], "datatype": "FP32", "data": EIGHT}
# Requests without warnings, to which the tests add wrong names.
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
    """An unknown name in a request.

    Attributes:
        where: Place of the object that has the name.
        name: The name.
        certain: Whether it is so similar to a known name that it must be refused.
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
    """A misspelt name, and whether it resembles only one name."""
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
    for part, after in pairwise((*mistake.where, "")):
        if isinstance(part, str):
            inner.setdefault(part, {} if isinstance(after, str) else [{}])
        inner = inner[part]
    inner[mistake.name] = 1
    return body


def ask(client: Client, path: str, body: Document) -> Any:
    path = path.format(model="repeat", version="1")
    return client.request("POST", path, json=body, headers={"X-API-Key": "secret"})


def named(answer: Any) -> list[str | None]:
    """Places of unknown names in the error or in the warnings of an answer."""
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


@pytest.mark.parametrize("path", BASES)
def test_names_in_a_body(client: Client, document: Document, path: str) -> None:
    assert not path.startswith("/v2/models") or named(ask(client, path, BASES[path])) == []
    silent, unsure = [], []
    assert path in ("/backtest", *CONTROLS) or len(of_the_body(document, path)) > 100
    for mistake in of_the_body(document, path):
        answer = ask(client, path, placed(BASES[path], mistake))
        if not any(place and place.endswith(mistake.name) for place in named(answer)):
            silent.append(mistake)
        if mistake.certain and answer.status_code == 200:
            unsure.append(mistake)
    assert not silent
    assert not unsure


def test_names_in_the_url_of_a_request_in_json(client: Client, document: Document) -> None:
    names = {each["name"] for each in document["paths"]["/forecast"]["post"]["parameters"]}
    for name in names | {each.name for each in of_the_url(document)}:
        answer = ask(client, f"/forecast?{name}=1", BASES["/forecast"])
        assert named(answer) == [f"query.{name}"]
        assert answer.status_code == 422 or name not in names


def send_table(
    client: Client,
    columns: dict[str, Any],
    query: str = "",
    path: str = "/forecast",
    metadata: dict[str, str] | None = None,
) -> Any:
    table = pa.table(columns).replace_schema_metadata(metadata)
    return client.send_table(table, f"{path}?model=repeat{query}")


@pytest.mark.parametrize("path", ["/forecast", "/backtest"])
def test_names_in_the_url_of_a_table(client: Client, document: Document, path: str) -> None:
    assert send_table(client, TABLE, path=path).status_code == 200
    for mistake in of_the_url(document, path):
        answer = send_table(client, TABLE, f"&{mistake.name}=1", path)
        assert answer.status_code == 422, mistake
        assert mistake.name in answer.json()["error"]["message"]


@pytest.mark.parametrize("column", TABLE)
def test_names_of_the_columns_of_a_table(client: Client, column: str) -> None:
    for wrong in {wrong for wrong, _ in edits(column)} - TABLE.keys():
        renamed = {wrong if name == column else name: TABLE[name] for name in TABLE}
        answer = send_table(client, renamed)
        assert answer.status_code == 422, wrong
        assert wrong in json.dumps(answer.json())
        # If the similar name is present too, the hint is to remove the unknown one.
        beside = send_table(client, {**TABLE, wrong: TABLE[column]})
        (found,) = notes(beside)
        assert found["message"] == f"columns that are not read: {wrong}"


def table(**columns: Any) -> dict[str, Any]:
    return {"unique_id": ["x"] * 8, "load": EIGHT, **columns}


def notes(answer: Any) -> list[AnswerWarning]:
    warnings: list[AnswerWarning] = notes_of(table_of(answer)).get("warnings", [])
    return warnings


def test_distant_name_gets_no_suggestion(client: Client) -> None:
    inputs = [{"series": EIGHT, "colour": "red"}, {"series": EIGHT, "colour": "blue"}]
    body = request_body(*inputs, options={"seed": 1}, user="me", metadata={"horizons": 1})
    found = warned(client, body)
    assert {notice["type"] for notice in found} == {"ignored_field"}
    assert [notice["param"] for notice in found] == ["user", "options.seed", "inputs[0].colour"]


def test_known_parameters_that_are_not_read_here(client: Client) -> None:
    standard = {"sequence_id": 7, "sequence_start": True, "sequence_end": True, "priority": 1}
    small = tensor(np.full((1, 8, 2), 0.5, np.float32))
    for ignored in (request(small, model_name="multi"), request(small, parameters=standard)):
        assert infer(client, ignored).json()["parameters"].keys() == {"model_digest"}
    wanted = {"name": "forecast", "parameters": {"colour": "red"}}
    answer = infer(client, request(small | {"tag": 1}, parameters={"my": 1}, outputs=[wanted]))
    found = json.loads(answer.json()["parameters"]["warnings"])
    assert [notice["param"] for notice in found] == [
        *("parameters.my", "inputs[0].tag", "outputs[0].parameters.colour")
    ]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        *((name, EIGHT) for name in ("DS", "date", "Timestamp", "time")),
        ("created", MOMENTS),
        ("day", MOMENTS.cast(pa.date32())),
    ],
)
def test_times_under_another_name(client: Client, name: str, column: Any) -> None:
    answer = send_table(client, table(**{name: column}))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["param"] == name
    assert "rename" in error["message"]
    hours = np.datetime64(START, "us") + np.arange(8) * np.timedelta64(1, "h")
    (found,) = notes(send_table(client, table(ds=hours, **{name: column})))
    assert found["message"] == f"columns that are not read: {name}"


def test_columns_that_are_not_read(client: Client) -> None:
    assert notes(send_table(client, table())) == []
    assert notes(send_table(client, table(__index_level_0__=[*range(1, 9)]))) == []
    answer = send_table(client, table(__index_level_0__=MOMENTS))
    assert answer.json()["error"]["param"] == "__index_level_0__"
    error = send_table(client, {"unique_id": ["x"] * 8, "Load": EIGHT}).json()["error"]
    assert (error["param"], error["message"][-22:]) == ("load", "; did you mean 'Load'?")
    many = {f"feature_{index}": EIGHT for index in range(25)}
    (found,) = notes(send_table(client, table(y=EIGHT, **many)))
    names = ", ".join(["y", *many][:20])
    assert found["message"] == f"columns that are not read: {names} and 6 more"


def test_options_in_the_metadata_of_a_table(client: Client) -> None:
    error = send_table(client, table(), metadata={"horizon": "2"}).json()["error"]
    assert error["param"] == "schema.metadata.horizon"
    assert error["message"] == "unknown; 'horizon' belongs in the URL"
    assert notes(send_table(client, table(), metadata={"pandas": "{}", "mine": "x"})) == []
    # The number of comparisons is limited.
    many = {f"mine{index:03}": "x" for index in range(64)}
    assert notes(send_table(client, table(), metadata={**many, "horizon": "2"})) == []
    (found,) = notes(send_table(client, table(), metadata={"foretell": '{"horizon": 2}'}))
    assert found["param"] == "schema.metadata.foretell"


@pytest.mark.parametrize(
    ("path", "change", "place", "hint"),
    [
        *(
            ("/forecast", change, place, hint)
            for change, place, hint in [
                ({"options": {"horizons": 2}}, "options.horizons", "did you mean 'horizon'?"),
                ({"horizon": 2}, "horizon", "'horizon' belongs in options"),
                ({"quantile": [0.1]}, "quantile", "did you mean 'quantiles' in options?"),
                ({"options": {"model": "a"}}, "options.model", "'model' belongs at the top level"),
                (
                    {"options": {"stages": ["a"]}},
                    *("options.stages", "'stages' belongs in options.attention"),
                ),
                *(
                    (
                        {"inputs": [{"series": EIGHT, name: value}]},
                        *(f"inputs[0].{name}", f"did you mean {meant!r}?"),
                    )
                    for name, value, meant in [
                        ("timezone", "Europe/Berlin", "time_zone"),
                        ("startTimestamp", START, "start_timestamp"),
                        ("freq", "D", "frequency"),
                    ]
                ),
            ]
        ),
        *(
            (f"/forecast?{query}", {}, place, hint)
            for query, place, hint in [
                ("horizon=2&quantile=0.1", "query.horizon", "'horizon' belongs in options"),
                ("quantile=0.1", "query.quantile", "did you mean 'quantiles' in options?"),
                ("model=repeat", "query.model", "'model' belongs at the top level"),
            ]
        ),
        (
            INFERENCES[0],
            {"parameters": {"binary_data": True}},
            *("parameters.binary_data", "'binary_data' belongs in outputs[].parameters"),
        ),
        (
            f"{INFERENCES[0]}?time_out=5",
            *({}, "query.time_out", "did you mean 'timeout' in parameters?"),
        ),
    ],
)
def test_hint_names_the_nearest_name(
    client: Client, path: str, change: Document, place: str, hint: str
) -> None:
    answer = ask(client, path, BASES[path.partition("?")[0]] | change)
    assert answer.status_code == 422
    error = answer.json()["error"]
    message = f"{error['param']}: {error['message']}" if isinstance(error, dict) else error
    assert message == f"{place}: unknown; {hint}"


def test_unknown_name_fails_only_its_own_input(client: Client) -> None:
    answer = client.forecast(
        request_body({"series": EIGHT, "name": "a"}, {"series": EIGHT, "freq": "D"})
    )
    assert answer.json()["status"] == "partial"
    assert answer.json()["outputs"][1]["error"]["param"] == "inputs[1].freq"
