from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import uvloop

from foretell.service.errors import StartError
from foretell.service.http.sockets import Acceptor, accept_all, listen, reserve
from foretell.service.metrics import Metrics

LOOPBACK = "127.0.0.1"


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def take_two(host: str, port: int) -> list[socket.socket]:
    return [one for [one] in reserve(host, port, 2)]


@pytest.mark.parametrize("take", [listen, take_two])
def test_unavailable_address_is_an_error(
    take: Callable[[str, int], list[socket.socket]],
) -> None:
    [taken] = listen(LOOPBACK, 0)
    with taken:
        for host, port in ((LOOPBACK, port_of(taken)), ("192.0.2.1", 80)):
            with pytest.raises(StartError, match=f"^cannot listen on {host}:{port}: "):
                take(host, port)


def _connect(listener: socket.socket, times: int) -> None:
    address = (LOOPBACK, port_of(listener))
    for _ in range(times):
        socket.create_connection(address, timeout=60).close()


def _count(listener: socket.socket) -> int:
    listener.setblocking(False)
    accepted = list(accept_all(listener))
    for connection in accepted:
        connection.close()
    assert list(accept_all(listener)) == []
    return len(accepted)


@pytest.fixture
def reserved() -> Iterator[list[socket.socket]]:
    """Two sockets of one address, that do not listen."""
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in take_two(LOOPBACK, 0)]


def test_reserved_address_excludes_other_servers(reserved: list[socket.socket]) -> None:
    one, other = reserved
    assert port_of(one) == port_of(other)
    one.listen()
    for take in (listen, take_two):
        with pytest.raises(StartError):
            take(LOOPBACK, port_of(one))


def test_reserved_address_connects_to_listening_sockets(reserved: list[socket.socket]) -> None:
    one, other = reserved
    with pytest.raises(ConnectionRefusedError):
        _connect(one, 1)
    one.listen()
    _connect(one, 16)
    assert _count(one) == 16
    other.listen()
    _connect(one, 64)
    accepted = [_count(each) for each in reserved]
    assert sum(accepted) == 64
    assert min(accepted) > 0
    one.shutdown(socket.SHUT_RDWR)
    _connect(one, 16)
    assert _count(other) == 16
    # A socket that stopped listening may listen again.
    one.listen()
    assert port_of(one) == port_of(other)


CALLERS = 50


def test_acceptor_accepts_all_waiting_connections_at_once() -> None:
    connected: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.append(transport)

    async def connect() -> int:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            [listener] = listen("127.0.0.1", 0)
            stack.enter_context(listener)
            server = await loop.create_server(Connection, sock=listener)
            acceptor = Acceptor([listener], Connection, Metrics())
            for _ in range(CALLERS):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            turns = 0
            while len(connected) < CALLERS:
                await asyncio.sleep(0)
                turns += 1
            await acceptor.close()
            stack.enter_context(socket.create_connection(listener.getsockname()))
            while len(connected) == CALLERS:
                await asyncio.sleep(0)
            for transport in connected:
                transport.close()
            server.close()
            await server.wait_closed()
        return turns

    # One turn of the loop accepts them all; connecting takes a few more turns.
    assert uvloop.run(asyncio.wait_for(connect(), 30)) < CALLERS / 2
