"""The client of a request."""

from __future__ import annotations

from starlette.requests import Request

from foretell.service.http.client import EXTENSION, ClientConnection, connection_of


def test_watchers_are_called_on_disconnect() -> None:
    listened: list[str] = []
    called: list[str] = []
    client = ClientConnection(lambda: listened.append("."))

    def first() -> None:
        called.append("first")
        client.unwatch(second)

    def second() -> None:
        called.append("second")

    client.watch(second)
    client.unwatch(second)
    client.watch(first)
    assert listened == [".", "."]
    client.disconnect()
    assert client.disconnected
    assert called == ["first"]
    # A callback that is added late is called at once.
    client.watch(second)
    assert called == ["first", "second"]


def test_client_of_foretells_server() -> None:
    client = ClientConnection(lambda: None)
    request = Request({"type": "http", "extensions": {EXTENSION: client}})
    assert connection_of(request) is client
    # A request without a connection never disconnects.
    other = connection_of(Request({"type": "http"}))
    other.watch(lambda: None)
    assert not other.disconnected
