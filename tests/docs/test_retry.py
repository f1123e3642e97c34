"""The function that docs/clients/httpx.md offers waits as it is told."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.docs.pages import blocks
from tests.support.process import ROOT

PAGE = ROOT / "docs" / "clients" / "httpx.md"


@pytest.mark.parametrize("refusals", [0, 2])
def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    busy = [httpx.Response(status, headers={"Retry-After": "3"}) for status in (429, 503)]
    answers = [*busy[:refusals], httpx.Response(200, json={"outputs": ["forecast"]})]
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    (block,) = (block for block in blocks(PAGE) if "Retry-After" in block.text)
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with httpx.Client(transport=transport, base_url="http://server") as client:
        names = {"client": client}
        exec(block.text, names)
        assert names["forecast"]([{}]) == ["forecast"]
    assert waits == [3.0] * refusals
