from __future__ import annotations

import socket

import pytest

from foretell.service.errors import StartError
from foretell.service.web.sockets import accept_all, listen, reserve

LOOPBACK = "127.0.0.1"


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def test_an_address_is_taken_once() -> None:
    with listen(LOOPBACK, 0) as taken:
        for take in (listen, reserve):
            with pytest.raises(
                StartError, match=f"^cannot listen on {LOOPBACK}:{port_of(taken)}: "
            ):
                take(LOOPBACK, port_of(taken))


def test_an_address_of_another_machine() -> None:
    for take in (listen, reserve):
        with pytest.raises(StartError, match=r"cannot listen on 192\.0\.2\.1:80"):
            take("192.0.2.1", 80)


def test_a_reserved_address_is_for_those_who_share_it() -> None:
    with reserve(LOOPBACK, 0) as reserved:
        port = port_of(reserved)
        with listen(LOOPBACK, port, shared=True), listen(LOOPBACK, port, shared=True):
            for take in (listen, reserve):
                with pytest.raises(StartError):
                    take(LOOPBACK, port)


def test_a_reserved_address_takes_no_connections() -> None:
    with (
        reserve(LOOPBACK, 0) as reserved,
        pytest.raises(ConnectionRefusedError),
        socket.create_connection((LOOPBACK, port_of(reserved)), timeout=60),
    ):
        pass


def test_connections_are_dealt_out() -> None:
    with reserve(LOOPBACK, 0) as reserved:
        address = (LOOPBACK, port_of(reserved))
        with listen(*address, shared=True) as one, listen(*address, shared=True) as other:
            connections = [socket.create_connection(address, timeout=60) for _ in range(64)]
            accepted = [_count(listener) for listener in (one, other)]
            for connection in connections:
                connection.close()
    assert sum(accepted) == 64
    assert min(accepted) > 0


def _count(listener: socket.socket) -> int:
    listener.setblocking(False)
    accepted = accept_all(listener)
    for connection in accepted:
        connection.close()
    assert accept_all(listener) == []
    return len(accepted)


def test_both_protocols() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        reserved = reserve("::1", 0)
    except StartError:
        pytest.skip("no IPv6 here")
    with reserved, listen("::1", port_of(reserved), shared=True) as listener:
        assert listener.family == socket.AF_INET6
