"""Many callers at once: batched together, answered apart."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.client import Client
from tests.service.conftest import MULTIVARIATE

CALLERS = 64


@pytest.fixture(scope="module")
def histories() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(2).normal(size=(CALLERS, 8, 2)).astype(np.float32)


def request_body(*histories: np.ndarray[Any, Any], **options: Any) -> dict[str, Any]:
    inputs = [{"series": history.tolist()} for history in histories]
    return {"model": "multi", "inputs": inputs, "options": options}


def connect(client: Client) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(client.app)
    return httpx.AsyncClient(transport=transport, base_url="http://server")


def post_together(client: Client, bodies: list[Any]) -> list[httpx.Response]:
    """Send every request before any is answered."""

    async def post() -> list[httpx.Response]:
        async with connect(client) as http:
            return await asyncio.gather(*(http.post("/forecast", json=body) for body in bodies))

    return asyncio.run(post())


def test_everyone_gets_their_own_forecast(
    models: Path, histories: np.ndarray[Any, np.dtype[np.float32]]
) -> None:
    with Client(models) as client:
        answers = post_together(client, [request_body(history) for history in histories])
        expected = MULTIVARIATE.forecast(histories)
        for answer, forecast in zip(answers, expected, strict=True):
            (output,) = answer.json()["outputs"]
            np.testing.assert_allclose(output["content"][0]["mean_forecast"], forecast, rtol=1e-5)
        metrics = client.get("/metrics").text
        labels = '{model="multi",version="1"}'
        windows = re.search(rf"foretell_batch_windows_sum{re.escape(labels)} (\S+)", metrics)
        assert windows is not None
        assert float(windows[1]) == CALLERS


def test_attention_goes_to_who_asked(
    models: Path, histories: np.ndarray[Any, np.dtype[np.float32]]
) -> None:
    options = [{"attention": True} if caller % 3 == 0 else {} for caller in range(CALLERS)]
    bodies = [request_body(history, **own) for history, own in zip(histories, options, strict=True)]
    with Client(models) as client:
        contents = [
            answer.json()["outputs"][0]["content"][0] for answer in post_together(client, bodies)
        ]
        assert ["attention" in content for content in contents] == [bool(own) for own in options]
        for caller in (0, 30, 63):
            alone = client.first(bodies[caller])["attention"]
            for stage, same in zip(contents[caller]["attention"], alone, strict=True):
                assert stage["name"] == same["name"]
                np.testing.assert_allclose(stage["weights"], same["weights"], rtol=1e-5)
