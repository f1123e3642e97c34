"""The route of the tools: keys, limits, hosts, origins, and its absence."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.mcp.agent import Agent, send
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

HISTORY = [1.0, 2, 3, 4, 5, 6, 7, 8]
GIVEN = {"model": "calibrated", "inputs": [{"series": HISTORY}]}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "forecast", "arguments": GIVEN},
}


def test_it_is_off_by_default(repository: Path, tmp_path: Path) -> None:
    with Server(repository, tmp_path / "log") as server:
        assert send(server.url).status_code == 404
        assert "nearest" not in send(server.url).text


def test_sdk_is_imported_only_if_it_is_on() -> None:
    code = (
        "import sys, foretell.service.server; print(sorted({'mcp', 'mcp_types'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_missing_extra_is_named_at_the_start(
    repository: Path, tmp_path: Path, workers: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    done = subprocess.run(
        [sys.executable, "-m", "foretell", "serve", "--models", repository, "--port", "0"],
        env={
            "PATH": "",
            "PYTHONPATH": str(tmp_path),
            "FORETELL_MCP": "true",
            "FORETELL_DEVICE": "cpu",
            "FORETELL_WORKERS": str(workers),
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "FORETELL_MCP: mcp is not installed; install foretell with the extra mcp" in done.stderr


@pytest.fixture(scope="module")
def guarded(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys, a small limit of bodies, another name and a separate port of probes."""
    log = tmp_path_factory.mktemp("guarded") / "log"
    settings = {
        "api_keys": "reader",
        "actuals_keys": "writer",
        "max_body_bytes": 3000,
        "mcp_hosts": "forecasts.example.com, other.example.com",
        "cors_origins": "https://app.example.com",
        "root_path": "/behind",
        "operations_port": 0,
    }
    with Server(repository, log, mcp="true", **settings) as server:
        yield server


def test_keys_are_those_of_the_routes(guarded: Server) -> None:
    agent = Agent(guarded.url, authorization="Bearer reader")
    assert agent.fields("forecast", **GIVEN)["model"] == "calibrated@1"
    for mode in ("auto", "legacy"):
        unknown = Agent(guarded.url, mode, authorization="Bearer wrong")
        assert unknown.refusal() == "the key is not one of this server's"
        assert Agent(guarded.url, mode).refusal().startswith("expected a key: ")
        writer = Agent(guarded.url, mode, x_api_key="writer")
        assert writer.refusal().startswith("the key may not forecast or read models")
    answer = send(guarded.url)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_large_body_is_refused(guarded: Server) -> None:
    agent = Agent(guarded.url, authorization="Bearer reader")
    given = {"model": "calibrated", "inputs": [{"series": [1.0] * 2000}]}
    assert agent.refusal("forecast", **given) == "expected a body of at most 3000 bytes"
    unpacked = gzip.compress(json.dumps({**CALL, "more": "x" * 100_000}).encode())
    headers = {"X-API-Key": "reader", "Content-Encoding": "gzip"}
    answer = httpx.post(f"{guarded.url}/mcp", content=unpacked, headers=headers)
    assert (answer.status_code, answer.json()["error"]["data"]["type"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("forecasts.example.com", 200),
        ("other.example.com:8443", 200),
        ("localhost:9", 200),
        ("[::1]:9", 200),
        ("Forecasts.Example.COM.:443", 200),
        ("192.0.2.7:8000", 200),
        ("[2001:db8::7]", 200),
        ("192.0.2.7.evil.com", 421),
        ("localhost:80:80", 421),
        ("evil.example.com", 421),
        ("evil.example.com:80", 421),
        ("forecasts.example.com.evil.com", 421),
    ],
)
def test_hosts(guarded: Server, host: str, status: int) -> None:
    """A page that resolves its own name to the server's address must not use the tools."""
    answer = send(guarded.url, x_api_key="reader", host=host)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["message"] == (
            "Host: expected one of localhost, 127.0.0.1, [::1], forecasts.example.com, "
            f"other.example.com, got {host!r}; add the name by which clients reach the server to "
            "FORETELL_MCP_HOSTS"
        )


def test_origins(guarded: Server) -> None:
    allowed, evil = "https://app.example.com", "https://evil.example.com"
    answer = send(guarded.url, x_api_key="reader", origin=allowed)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, allowed)
    answer = send(guarded.url, x_api_key="reader", origin=evil)
    assert (answer.status_code, answer.json()["error"]["data"]["param"]) == (403, "Origin")
    for host, origin, status in (
        ("forecasts.example.com", "https://Forecasts.example.com", 200),
        ("forecasts.example.com:443", "https://forecasts.example.com", 200),
        ("192.0.2.7:8000", "http://192.0.2.7:8000", 200),
        ("forecasts.example.com", "http://forecasts.example.com:8080", 403),
        ("localhost", "null", 403),
        ("localhost", "HTTPS://APP.example.com", 200),
    ):
        answer = send(guarded.url, x_api_key="reader", host=host, origin=origin)
        assert answer.status_code == status, (host, origin)
    preflight = {
        "Origin": allowed,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "mcp-protocol-version,mcp-method,mcp-name",
    }
    assert httpx.options(f"{guarded.url}/mcp", headers=preflight).status_code == 200


def test_every_origin_may_be_allowed(repository: Path, tmp_path: Path) -> None:
    with Server(repository, tmp_path / "log", mcp="true", cors_origins="*") as server:
        answer = send(server.url, origin="https://any.example.com")
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


def test_prefix_of_a_proxy(guarded: Server) -> None:
    assert send(f"{guarded.url}/behind", x_api_key="reader").status_code == 200


def test_port_of_probes_has_no_tools(guarded: Server) -> None:
    addresses = [line for line in guarded.log.splitlines() if "serving on http" in line]
    (probes,) = {json.loads(line)["message"].split()[-1] for line in addresses} - {guarded.url}
    assert httpx.get(f"{probes}/healthz").status_code == 200
    assert send(probes, x_api_key="reader").status_code == 404


def test_path_with_a_slash_hints_at_the_route(server: Server) -> None:
    answer = httpx.post(f"{server.url}/mcp/", json=CALL)
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert message.startswith("Not Found: POST /mcp/; the nearest is POST /mcp; see ")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_there_are_no_streams_and_no_sessions(server: Server, method: str) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = httpx.request(method, f"{server.url}/mcp", headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = send(server.url, accept="application/json, text/event-stream")
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{}", {}, 400),
        (b"nonsense", {}, 400),
        (b"[]", {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"X-Timeout-Ms": "soon"}, 422),
        (b"{}", {"Accept": "text/html"}, 406),
    ],
)
def test_other_messages_are_refused(
    server: Server, content: bytes, headers: dict[str, str], status: int
) -> None:
    headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
    answer = httpx.post(f"{server.url}/mcp", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["jsonrpc"] == "2.0"
    assert "Traceback" not in answer.text


def test_log_has_the_request_id_of_both_requests(server: Server) -> None:
    identifier = "agent-7"
    answer = send(server.url, CALL, x_request_id=identifier)
    assert answer.headers["x-request-id"] == identifier

    def paths() -> list[str]:
        lines = [json.loads(line) for line in server.log.splitlines() if identifier in line]
        return [line["path"] for line in lines]

    until(lambda: paths() == ["/models/calibrated", "/forecast", "/mcp"])


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a long time for hundreds of windows."""
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="calibrated", burn=60))
    return folder


def test_deadline_passes(slow: Path, tmp_path: Path) -> None:
    arguments = {**GIVEN, "inputs": [{"series": HISTORY}] * 300}
    call = {**CALL, "params": {"name": "forecast", "arguments": arguments}}
    with Server(slow, tmp_path / "log", mcp="true", threads=1) as server:
        # The forecasts take seconds. On a slow machine the time passes before they begin.
        answer = send(server.url, call, x_timeout_ms="300")
        assert "deadline" in answer.text
        assert "mean_forecast" not in answer.text


@pytest.mark.parametrize("workers", [1, 2])
def test_stop_answers_a_running_call(slow: Path, tmp_path: Path, workers: int) -> None:
    with Server(slow, tmp_path / "log", mcp="true", workers=workers, threads=1) as server:
        statuses: list[int] = []
        inputs = [{"series": HISTORY}] * 50
        arguments = {**GIVEN, "inputs": inputs}
        call = {**CALL, "params": {"name": "forecast", "arguments": arguments}}

        def act() -> None:
            answer = send(server.url, call)
            statuses.append(answer.status_code)
            assert not answer.json()["result"]["isError"], answer.text

        calling = threading.Thread(target=act)
        calling.start()
        until(lambda: server.metric("foretell_requests_in_flight") >= 3)
        assert server.stop() == 0
        calling.join(60)
        assert statuses == [200]
