"""Requests of the OpenAPI document and of the client's notebook, to the demo's models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nbformat

from foretell.service.api.openapi import examples
from foretell.service.http.body import JSON
from tests.docs.notebook import NOTEBOOK, execute
from tests.docs.reader import assert_shows
from tests.support.process import Server

KEY = {"X-API-Key": "secret"}


def requests(document: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {}).get(JSON)
            if content:
                yield path, [example["value"] for example in content["examples"].values()]


def test_every_request_is_answered(server: Server) -> None:
    with httpx.Client(base_url=server.url, headers=KEY, timeout=60) as client:
        found = dict(requests(client.get("/openapi.json").json()))
        assert "/forecast" in found
        # Load the unloaded version again.
        for path in sorted(found, reverse=True):
            for body in found[path]:
                answer = client.post(path.format(**examples()["parameters"]), json=body)
                assert answer.status_code == 200, f"{path}: {answer.text}"
        first, *_ = found["/forecast"]
        answer = client.post("/forecast", json=first).json()
    assert_shows(examples()["answers"]["forecast"], answer, "the example")
    assert len(answer["outputs"][0]["content"][0]["mean_forecast"]) == 2


def test_get_paths_with_their_parameters(server: Server) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    shown = examples()["parameters"]
    for path, operations in document["paths"].items():
        if "get" in operations:
            given = operations["get"].get("parameters", ())
            required = [each["name"] for each in given if each["required"]]
            query = {name: shown[name] for name in required if f"{{{name}}}" not in path}
            answer = httpx.get(server.url + path.format(**shown), params=query)
            assert answer.status_code == 200, f"{path}: {answer.text}"


def forms(notebook: nbformat.NotebookNode) -> list[list[tuple[str, list[str]]]]:
    """Kind and media types of each cell's outputs.

    Models that replace those of the demo may warn of their forecasts.
    """
    return [
        [
            (output.output_type, sorted(output.get("data", {})))
            for output in cell.outputs
            if output.get("name") != "stderr"
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_runs(folder: Path, server: Server) -> None:
    found = execute(folder, httpx.URL(server.url).netloc.decode())
    shown = nbformat.read(NOTEBOOK, as_version=4)
    assert forms(found) == forms(shown)
    assert sum(map(len, forms(shown))) > 8
    assert [cell.source for cell in found.cells] == [cell.source for cell in shown.cells]
