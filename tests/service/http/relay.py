"""What stands between a client and a server, and sees what they say."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress

import httpx

from tests.support.in_thread import InThread


class Relay(InThread):
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

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passing))


def _pass(source: socket.socket, target: socket.socket, copy: bytearray | None = None) -> None:
    """All that comes, and its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if copy is not None:
                copy += data
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
