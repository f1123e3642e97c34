"""The function of docs/guides/http.md waits for `Retry-After`."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.docs.pages import blocks
from tests.support.process import ROOT

PAGE = ROOT / "docs" / "guides" / "http.md"


@pytest.mark.parametrize("refusals", [0, 2])
def test_function_waits_for_a_busy_server(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    busy = [httpx.Response(status, headers={"Retry-After": "3"}) for status in (429, 503)]
    answers = [*busy[:refusals], httpx.Response(200, json={"outputs": ["forecast"]})]
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    (block,) = (block for block in blocks(PAGE) if "time.sleep" in block.text)
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with httpx.Client(transport=transport, base_url="http://server") as client:
        names: dict[str, Any] = {}
        exec(block.text, names)
        assert names["forecast"](client, [{}]) == ["forecast"]
    assert waits == [3.0] * refusals
