from __future__ import annotations

import asyncio
import socket
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


def test_an_address_is_taken_once() -> None:
    [taken] = listen(LOOPBACK, 0)
    with taken:
        for take in (listen, take_two):
            with pytest.raises(
                StartError, match=f"^cannot listen on {LOOPBACK}:{port_of(taken)}: "
            ):
                take(LOOPBACK, port_of(taken))


def test_an_address_of_another_machine() -> None:
    for take in (listen, take_two):
        with pytest.raises(StartError, match=r"cannot listen on 192\.0\.2\.1:80"):
            take("192.0.2.1", 80)


def test_a_reserved_address_is_for_one_server() -> None:
    with ExitStack() as stack:
        one, other = map(stack.enter_context, take_two(LOOPBACK, 0))
        assert port_of(one) == port_of(other)
        one.listen()
        for take in (listen, take_two):
            with pytest.raises(StartError):
                take(LOOPBACK, port_of(one))


def test_a_reserved_address_takes_no_connections_until_somebody_listens() -> None:
    with ExitStack() as stack:
        one, _ = map(stack.enter_context, take_two(LOOPBACK, 0))
        address = (LOOPBACK, port_of(one))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=60)
        one.listen()
        # All of them to the one that listens.
        for _ in range(16):
            socket.create_connection(address, timeout=60).close()
        assert _count(one) == 16


def test_who_does_not_listen_any_more_may_again_at_the_same_address() -> None:
    with ExitStack() as stack:
        one, other = map(stack.enter_context, take_two(LOOPBACK, 0))
        address = (LOOPBACK, port_of(one))
        for each in (one, other):
            each.listen()
        one.shutdown(socket.SHUT_RDWR)
        # All of them to the one that listens.
        for _ in range(16):
            socket.create_connection(address, timeout=60).close()
        assert _count(other) == 16
        one.listen()
        assert port_of(one) == port_of(other) == address[1]


def test_connections_are_dealt_out() -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(each) for each in take_two(LOOPBACK, 0)]
        for each in both:
            each.listen()
        address = (LOOPBACK, port_of(both[0]))
        connections = [socket.create_connection(address, timeout=60) for _ in range(64)]
        accepted = [_count(listener) for listener in both]
        for connection in connections:
            connection.close()
    assert sum(accepted) == 64
    assert min(accepted) > 0


def _count(listener: socket.socket) -> int:
    listener.setblocking(False)
    accepted = list(accept_all(listener))
    for connection in accepted:
        connection.close()
    assert list(accept_all(listener)) == []
    return len(accepted)


CALLERS = 50


def test_all_who_wait_are_connected_at_once() -> None:
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

    # The loop hears of them in one turn; to connect them takes a few more.
    assert uvloop.run(asyncio.wait_for(connect(), 30)) < CALLERS / 2
