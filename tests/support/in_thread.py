"""Servers in a thread of the process of the tests."""

from __future__ import annotations

from socketserver import TCPServer
from threading import Thread
from typing import Self


class InThread:
    """A server of the standard library, on the loopback interface, until the end of the block."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = Thread(target=server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
