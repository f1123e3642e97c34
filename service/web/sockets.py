"""The addresses a server listens on."""

from __future__ import annotations

import socket

from foretell.service.errors import StartError


def listen(host: str, port: int) -> socket.socket:
    """Take connections to an address.

    Args:
        host: Name or address.
        port: 0 takes a free one.

    Raises:
        StartError: the address is taken, or is none of this machine.
    """
    try:
        return socket.create_server((host, port), family=_family(host))
    except OSError as error:
        raise _refusal(host, port, error) from error


def reserve(host: str, port: int, count: int) -> list[socket.socket]:
    """Take an address for several processes; nobody connects to it until they listen.

    The kernel deals connections out evenly to sockets of their own, which processes that accept
    from one socket do not.

    Args:
        host: Name or address.
        port: 0 takes a free one.
        count: How many sockets.

    Raises:
        StartError: as for `listen`.
    """
    taken: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket(_family(host))
            taken.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if one.family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if one is taken[0]:
                # Not before: it would be bound next to the processes of another server.
                one.bind((host, port))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            else:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                one.bind((host, taken[0].getsockname()[1]))
    except OSError as error:
        for one in taken:
            one.close()
        raise _refusal(host, port, error) from error
    return taken


def accept_all(listener: socket.socket, most: int | None = None) -> list[socket.socket]:
    """The connections that nobody has accepted yet.

    Args:
        listener: Does not block.
        most: Most of them; None for all.
    """
    accepted: list[socket.socket] = []
    while len(accepted) != most:
        try:
            accepted.append(listener.accept()[0])
        except ConnectionAbortedError:
            continue
        except OSError:
            # There is none, or no file for it.
            break
    return accepted


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _refusal(host: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")
