from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Literal
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from moto.server import ThreadedMotoServer

from foretell.storage import location as places
from tests.support.in_thread import InThread

Kind = Literal["silent", "500", "denied", "cut", "wrong", "pages"]
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def _spoilt(kinds: set[Kind], status: int, content: bytes) -> tuple[int, bytes]:
    if "500" in kinds:
        return 500, b""
    if "denied" in kinds:
        return 403, _DENIED
    if "wrong" in kinds:
        return status, bytes([content[0] ^ 1]) + content[1:]
    return status, content


class Proxy(InThread):
    """A proxy that forwards requests, and damages some answers, within `with`.

    Attributes:
        faults: Kind of fault by a pattern of method and path: no answer, an error, half of the
            bytes, a wrong byte, or a listing in pages of two entries.
        requests: Methods and paths of requests.
        before: Called with each request before it is forwarded.
    """

    def __init__(self, target: str) -> None:
        self.faults: dict[str, Kind] = {}
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        self._ended = Event()
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), self._handler(target)))

    def gets(self) -> list[str]:
        """Objects that were read, by the ends of their paths: version and file."""
        found = [re.fullmatch(r"GET .*/(\w+/[\w.]+)", request) for request in self.requests]
        return [match[1] for match in found if match]

    def _handler(self, target: str) -> type[BaseHTTPRequestHandler]:
        proxy, host = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                request = f"{self.command} {self.path}"
                proxy.requests.append(request)
                proxy.before(request)
                kinds = {kind for known, kind in proxy.faults.items() if re.search(known, request)}
                path = self.path + ("&max-keys=2" if "pages" in kinds else "")
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                connection = HTTPConnection(host)
                connection.request(self.command, path, body, dict(self.headers))
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
                connection.close()
                if "silent" in kinds:
                    proxy._ended.wait()
                    return
                status, content = _spoilt(kinds, status, content)
                self.send_response(status)
                for name in ("etag", "last-modified", "content-type"):
                    if value := answer.getheader(name):
                        self.send_header(name, value)
                length = answer.getheader("content-length") if self.command == "HEAD" else None
                self.send_header("content-length", length or str(len(content)))
                self.end_headers()
                if "cut" in kinds:
                    content = content[: len(content) // 2]
                    self.close_connection = True
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        super().__exit__()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server of S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def environment(s3: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets the variables of a user of that server, and removes others."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return monkeypatch


@pytest.fixture
def bucket(s3: str, environment: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket."""
    name = f"test-{uuid4().hex}"
    httpx.put(f"{s3}/{name}").raise_for_status()
    return f"s3://{name}"


@pytest.fixture
def proxy(s3: str, environment: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """All requests of the client pass through it, with at most one retry."""
    retry = {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    for name, value in retry.items():
        environment.setitem(places._RETRY, name, value)  # type: ignore[arg-type]
    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy
