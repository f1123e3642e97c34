"""The application in this process, behind a synchronous client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

import httpx
import pyarrow as pa
from starlette.requests import Request
from starlette.types import ASGIApp

from foretell.service.api.app import create_app
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.engine.repository import Repository
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.routes import ARROW
from foretell.service.metrics import BATCH_WINDOWS, Metrics
from foretell.service.opening import open_agents, open_ledger
from foretell.service.settings import Settings
from foretell.service.tracing import Tracer
from tests.service.kserve import kserve_types


def request_of(query: str = "", *, model: str = "", **headers: str) -> Request:
    """The head of a request, for a codec."""
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": named, "query_string": query.encode()}
    return Request(scope | {"path_params": {"model": model}})


def connect(app: ASGIApp) -> httpx.AsyncClient:
    """An HTTP client of an application for a test's own event loop."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


class Client:
    """Sends requests; answers of forecast routes must parse with KServe's own classes."""

    def __init__(self, models: Path | str, tracer: Tracer | None = None, **settings: Any) -> None:
        self.settings = Settings(**{"models": models, "device": "cpu", "threads": 1, **settings})
        self.metrics = Metrics()
        self.repository: Repository = load(self.settings, self.metrics)
        self.ledger = open_ledger(self.settings, self.repository, self.metrics)
        self.engine = LocalEngine(self.repository, self.metrics, self.ledger)
        self.app = create_app(
            self.settings, self.engine, tracer=tracer, agents=open_agents(self.settings)
        )
        self._runner = asyncio.Runner()
        self._http = connect(self.app)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()
        self.repository.close(5)
        if self.ledger is not None:
            self.ledger.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._runner.run(self._http.request(method, path, **options))
        types = kserve_types()
        if path.endswith("/forecast") and "/nixtla/" not in path and types is not None:
            kind = types.ForecastResponse if answer.is_success else types.ErrorResponse
            kind.model_validate_json(answer.content)
        return answer

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def forecast(self, body: Any, **headers: str) -> httpx.Response:
        return self.request("POST", "/forecast", json=body, headers=headers)

    def send(self, content: bytes, **headers: str) -> httpx.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/forecast", content=content, headers=names)

    def send_table(self, table: pa.Table, target: str) -> httpx.Response:
        """A table in Arrow's streaming format, to a path and its query."""
        headers = {"Content-Type": ARROW}
        return self.request("POST", target, content=write_table(table), headers=headers)

    def error(self, body: Any, **headers: str) -> dict[str, Any]:
        """The error object of a refused request."""
        answer = self.forecast(body, **headers)
        assert 400 <= answer.status_code < 500, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert error["code"] == str(answer.status_code)
        return error

    def windows(self, model: str) -> float:
        """Number of windows that version 1 of a model has run."""
        known = dict(self.metrics.counts.histograms())
        return known.get((BATCH_WINDOWS, model, "1"), [0.0])[0]

    def first(self, body: Any) -> dict[str, Any]:
        """The forecast of a request's first input."""
        answer = self.forecast(body)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()["outputs"][0]["content"][0]
        return content
