"""What stands between a client and a server, and sees what they say."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx


class Relay:
    """Passes connections on to a server.

    Args:
        url: Of the server.

    Attributes:
        heard: What was sent on each connection.
    """

    def __init__(self, url: str) -> None:
        there = httpx.URL(url)
        heard = self.heard = list[bytearray]()

        class Passing(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                sent = bytearray()
                heard.append(sent)
                with socket.create_connection((there.host, there.port or 80)) as server:
                    back = threading.Thread(target=_pass, args=(server, self.request))
                    back.start()
                    _pass(self.request, server, sent)
                    back.join()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passing)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _pass(source: socket.socket, target: socket.socket, copy: bytearray | None = None) -> None:
    """All that comes, and its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if copy is not None:
                copy += data
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
