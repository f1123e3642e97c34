"""A server in this process, whose HTTP needs no socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

import httpx

from foretell.service.api.app import create_app
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.ledger.ledger import DatabaseLedger
from foretell.service.metrics import Metrics
from foretell.service.opening import open_ledger
from foretell.service.settings import Settings


class InProcess:
    """A server with a ledger in a SQLite file, until the end of the block."""

    def __init__(self, models: Path, database: Path) -> None:
        settings = Settings.model_validate(
            {"models": models, "device": "cpu", "threads": 1, "ledger": f"sqlite:///{database}"}
        )
        metrics = Metrics()
        self._repository = load(settings, metrics)
        ledger = open_ledger(settings, self._repository, metrics)
        assert isinstance(ledger, DatabaseLedger)
        self.ledger = ledger
        app = create_app(settings, LocalEngine(self._repository, metrics, self.ledger))
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://server", timeout=60
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()
        self._repository.close(5)
        self.ledger.close()

    def get(self, path: str) -> dict[str, Any]:
        """The JSON of an answer; httpx.HTTPStatusError if it is an error."""
        return self._answer(self._runner.run(self._http.get(path)))

    def post(self, path: str, body: object) -> dict[str, Any]:
        return self._answer(self._runner.run(self._http.post(path, json=body)))

    def _answer(self, answer: httpx.Response) -> dict[str, Any]:
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found
