import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.command import run
from tests.support.in_thread import InThread
from tests.support.trained import every_form, every_mechanism

__all__ = ["every_form", "every_mechanism"]

CONTEXT, HORIZON = 4, 2
SERVED = {
    "name": "weather",
    "versions": ["2", "3"],
    "channels": ["wind", "load"],
    "context": CONTEXT,
    "horizon": HORIZON,
    "frequency": "h",
    "version": "3",
}


def answer(**changes: Any) -> dict[str, Any]:
    """The forecast of two hours that follow `data`."""
    content = {
        "mean_forecast": [[5.5, 50.0], [6.5, 60.0]],
        "timestamps": ["2024-01-01T06:00:00+01:00", "2024-01-01T07:00:00+01:00"],
    }
    outputs = [{"content": [content], "error": None}]
    return {"model": "weather", "model_version": "3", "outputs": outputs} | changes


Answers = dict[str, tuple[int, object]]


class FakeServer(InThread):
    """An HTTP server with fixed answers, on the loopback interface, within `with`.

    Args:
        answers: Status and body by path. A `bytes` body is sent unchanged, a function is called
            with the request's body, and others are sent as JSON.
    """

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.requests: list[tuple[str, Any]] = []
        self.keys: list[str | None] = []
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), self._handler()))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _answer(self, body: object) -> None:
                fake.requests.append((f"{self.command} {self.path}", body))
                fake.keys.append(self.headers["authorization"])
                status, response = fake.answers[self.path]
                response = response(body) if callable(response) else response
                content = response if isinstance(response, bytes) else json.dumps(response).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six hours; its columns are more than the model's, and in another order."""
    rows = [f"2024-01-01T0{hour}:00:00+01:00,{hour}0,x,{hour}.5" for hour in range(6)]
    path = tmp_path / "weather.csv"
    path.write_text("\n".join(["date,load,note,wind", *rows]) + "\n")
    return path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer({"/models": (200, [SERVED]), "/forecast": (200, answer())}) as server:
        yield server


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small PatchTST with random weights and three channels, `channel 0` to `channel 2`."""
    return checkpoint_of(CONFIGS["patchtst"], None, tmp_path_factory.mktemp("trained") / "small")


@pytest.fixture(scope="session")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The repository that `foretell export` made of it, and the command's output."""
    repository = tmp_path_factory.mktemp("repository")
    return repository, run("export", checkpoint, f"--out={repository}")
