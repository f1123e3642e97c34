from __future__ import annotations

import re

from tests.service.client import Client


def test_identifiers_differ(client: Client) -> None:
    made = set()
    for _ in range(50):
        answer = client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
        made |= {answer.headers["x-request-id"], answer.json()["id"].removeprefix("forecast-")}
    assert len(made) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
