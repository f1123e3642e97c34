"""Requests with actual values, and their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from tests.service.client import Client
from tests.service.ledger.conftest import HOUR, START
from tests.support.bundles import Spec, write_bundle


@pytest.fixture(scope="module", name="repository")
def models_of_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of hours, days and months, and one that does not forecast all of its channels."""
    folder = tmp_path_factory.mktemp("actuals")
    write_bundle(folder, Spec(name="calibrated", calibrated=3))
    write_bundle(folder, Spec(name="pair", channels=("load", "wind"), calibrated=3))
    write_bundle(folder, Spec(name="partial", channels=("load", "wind"), targets=("load",)))
    write_bundle(folder, Spec(name="daily", frequency="D"))
    write_bundle(folder, Spec(name="monthly", frequency="MS"))
    return folder


def post(client: Client, *inputs: Any, model: str = "calibrated", **fields: Any) -> httpx.Response:
    body = {"model": model, "inputs": [*inputs], **fields}
    return client.request("POST", "/actuals", json=body)


def written(answer: httpx.Response) -> list[tuple[int, int, int]]:
    """How many values of each input were new, changed and the same."""
    assert answer.status_code == 200, answer.text
    contents = [output["content"][0] for output in answer.json()["outputs"]]
    return [(each["new"], each["changed"], each["same"]) for each in contents]


def refused(answer: httpx.Response) -> tuple[str, str]:
    """Message and place of the error of the only input."""
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    return error["message"], error["param"]


def hours_from_start(*hours: int) -> pa.Array:
    return pa.array((START + np.array(hours) * HOUR).astype("datetime64[us]"))


def values_of(client: Client, name: str, model: str = "calibrated") -> dict[str, Any]:
    """Actual values of a series, from the last row of its first history on."""
    answer = client.get(f"/models/{model}/trajectories?series={name}&limit=1000").json()
    found: dict[str, Any] = answer["actuals"]
    return found
