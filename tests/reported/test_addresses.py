"""One server for IPv4 and IPv6 (vllm-project/vllm#22816, kserve/kserve#4558, litellm#9563)."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from foretell.service.errors import StartError
from foretell.service.http.sockets import listen, reserve
from tests.deploy.test_compose import PROBES

_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


def reached(port: int) -> set[socket.AddressFamily]:
    """The protocols by which a port of this machine takes connections."""
    found = set()
    for family, host in _LOOPBACK.items():
        with socket.socket(family) as caller:
            caller.settimeout(10)
            if caller.connect_ex((host, port)) == 0:
                found.add(family)
    return found


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "families"),
    [
        ("", {socket.AF_INET, socket.AF_INET6}),
        ("*", {socket.AF_INET, socket.AF_INET6}),
        ("::", {socket.AF_INET, socket.AF_INET6}),
        ("[::]", {socket.AF_INET, socket.AF_INET6}),
        ("::0", {socket.AF_INET, socket.AF_INET6}),
        ("0::", {socket.AF_INET, socket.AF_INET6}),
        ("[0:0:0:0:0:0:0:0]", {socket.AF_INET, socket.AF_INET6}),
        ("::0.0.0.0", {socket.AF_INET, socket.AF_INET6}),
        ("0", {socket.AF_INET}),
        ("::ffff:0.0.0.0", {socket.AF_INET}),
        ("::ffff:127.0.0.1", {socket.AF_INET}),
        ("0.0.0.0", {socket.AF_INET}),
        ("127.0.0.1", {socket.AF_INET}),
        ("::1", {socket.AF_INET6}),
        ("[::1]", {socket.AF_INET6}),
    ],
)
def test_a_host_is_reached_by_the_protocols_it_names(
    host: str, families: set[socket.AddressFamily]
) -> None:
    for groups in ([listen(host, 0)], reserve(host, 0, 2)):
        with ExitStack() as stack:
            for one in [one for group in groups for one in group]:
                stack.enter_context(one).listen()
            assert reached(groups[0][0].getsockname()[1]) == families


@needs_ipv6
@pytest.mark.parametrize("count", [1, 3])
def test_a_name_of_two_addresses_has_one_port(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(family, 1, 6, "", (host, 0)) for family, host in _LOOPBACK.items()]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with ExitStack() as stack:
        groups = reserve("both.test", 0, count)
        every = [stack.enter_context(one) for group in groups for one in group]
        assert [len(group) for group in groups] == [2] * count
        [port] = {one.getsockname()[1] for one in every}
        for one in every:
            one.listen()
        assert reached(port) == {socket.AF_INET, socket.AF_INET6}


def test_a_name_is_served_without_the_address_that_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = (socket.AF_INET, 1, 6, "", ("192.0.2.1", 0))
    own = (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [lacking, own])
    [one] = listen("half.test", 0)
    with one:
        assert one.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["::", "[::0]", ""])
def test_without_ipv6_every_address_is_of_ipv4(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    [one] = listen(host, 0)
    with one:
        assert one.family == socket.AF_INET


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(StartError, match=r"^cannot listen on nowhere\.invalid:80: "):
        listen("nowhere.invalid", 80)


@pytest.mark.parametrize("host", [f"{'a' * 64}.test", "a..test", ".test", "\udcff.test"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_no_host_is_called_is_refused(host: str, count: int) -> None:
    with pytest.raises(StartError, match=r"^cannot listen on .*\.test:80: no host can have"):
        reserve(host, 80, count)


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]", "127.0.0.1", "::", "[::0]", "0::", "0", "*", ""])
def test_the_health_check_of_the_image_asks_the_host_that_is_listened_on(host: str) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    [listener] = listen(host, 0)
    with listener, HTTPServer(("", 0), Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listener
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        subprocess.run(
            [sys.executable, "-c", PROBES[0][-1]],
            env={"FORETELL_HOST": host, "FORETELL_PORT": str(listener.getsockname()[1])},
            check=True,
        )
        thread.join()
    assert asked == ["/healthz"]
