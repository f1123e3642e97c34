"""A server that answers what it is told and remembers what it was asked."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.in_thread import InThread

Answers = dict[str, tuple[int, object]]


class FakeServer(InThread):
    """Answers on a free port of the loopback, while it is entered.

    Args:
        answers: Status and body by path; a `bytes` body is sent as it is, any other as JSON, and
            one that is called with the request's gives the body.
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
                status, said = fake.answers[self.path]
                said = said(body) if callable(said) else said
                content = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        return Handler
