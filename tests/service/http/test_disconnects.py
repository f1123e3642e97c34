from __future__ import annotations

from starlette.requests import Request

from foretell.service.http.protocol import EXTENSION, ClientConnection, connection_of


def test_watchers_are_called() -> None:
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


def test_a_late_watcher_is_called_at_once() -> None:
    called: list[bool] = []
    client = ClientConnection(lambda: None)
    client.disconnect()
    client.watch(lambda: called.append(True))
    assert called == [True]


def test_the_client_of_our_own_server_is_used() -> None:
    client = ClientConnection(lambda: None)
    request = Request({"type": "http", "extensions": {EXTENSION: client}})
    assert connection_of(request) is client


def test_a_client_without_a_connection_never_disconnects() -> None:
    client = connection_of(Request({"type": "http"}))
    client.watch(lambda: None)
    assert not client.disconnected
