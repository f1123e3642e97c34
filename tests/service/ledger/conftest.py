from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from foretell.service.arrays import Arrays
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.postgresql import Server, postgresql

CONTEXT, HORIZON = 8, 4
HOUR = np.timedelta64(1, "h")
START = np.datetime64("2024-01-01T00:00")
_NUMBERS = count()

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two models: `calibrated` of one channel, and `pair` of two."""
    folder = tmp_path_factory.mktemp("ledger")
    write_bundle(folder, Spec(name="calibrated", calibrated=3))
    write_bundle(folder, Spec(name="pair", channels=("load", "wind"), calibrated=3))
    return folder


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Server = request.getfixturevalue("server")
    name = f"ledger{next(_NUMBERS)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.url.replace("/postgres?", f"/{name}?")


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def opened(repository: Path) -> Open:
    """Opens a server with a ledger: `with opened(url, **settings) as client`."""

    @contextmanager
    def start(url: str, **settings: Any) -> Iterator[Client]:
        with Client(repository, ledger=url, **settings) as client:
            yield client

    return start


def series_of(
    name: str, values: NDArray[np.float64], first: int = 0, **fields: Any
) -> dict[str, Any]:
    """An input of a request whose first row is `first` hours after `START`."""
    start = f"{START + first * HOUR}:00"
    return {"name": name, "series": values.tolist(), "start_timestamp": start, **fields}


def forecast(client: Client, *inputs: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """The contents of an answer, whose forecasts are in the ledger afterwards."""
    answer = client.forecast({"model": "calibrated", "inputs": [*inputs], **fields})
    assert answer.status_code == 200, answer.text
    settle(client)
    return [output["content"][0] for output in answer.json()["outputs"]]


def observe(
    client: Client,
    name: str,
    values: NDArray[np.float64],
    first: int = 0,
    *,
    channels: tuple[str, ...] = ("load",),
    namespace: str = "",
) -> dict[str, int]:
    """Write actual values `[rows, channels]`, the first one `first` hours after `START`."""
    times = (START + (first + np.arange(len(values))) * HOUR).astype("datetime64[us]")
    arrays: Arrays = {"times": times.view(np.int64), "values": values.astype(np.float64).ravel()}
    series = [(namespace, name, "h", [*channels], len(values))]
    assert client.ledger is not None
    [written], _ = client.ledger.call("observe", [series], arrays)
    return written


def settle(client: Client) -> None:
    """Wait until all forecasts are written."""
    assert client.ledger is not None
    nothing: Arrays = {"times": np.empty(0, np.int64), "values": np.empty(0)}
    client.ledger.call("observe", [[]], nothing)


def scores(client: Client, query: str = "", model: str = "calibrated") -> list[dict[str, Any]]:
    answer = client.get(f"/models/{model}/accuracy{query}")
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return rows


def counted(client: Client, name: str, outcome: str) -> float:
    """A counter of the ledger."""
    line = f'foretell_ledger_{name}_total{{outcome="{outcome}"}} '
    text: str = client.get("/metrics").text
    [found] = [each for each in text.splitlines() if each.startswith(line)]
    return float(found.removeprefix(line))
