"""deploy/nginx.conf, by nginx itself, in front of a server."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import httpx
import pytest

from foretell.service.http.static import Pages
from tests.deploy.files import DEFAULTS, DEPLOY, directive, directives, seconds
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Program, Server, free_port
from tests.support.waiting import until

BODY = {"inputs": [{"series": [1.0] * 8}]}
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

needs_nginx = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None,
    reason="no nginx or openssl here (Debian: nginx-light, openssl)",
)


def test_limits_and_timeouts_match_the_settings() -> None:
    megabytes = directive("client_max_body_size").removesuffix("m")
    assert int(megabytes) << 20 == DEFAULTS.max_body_bytes
    assert f"at most {megabytes} MiB" in (DEPLOY / "nginx.conf").read_text()
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert seconds(directive(name)) == DEFAULTS.header_timeout_seconds
    assert seconds(directive("proxy_read_timeout")) > DEFAULTS.timeout_seconds
    [idle, callers] = directives("keepalive_timeout")
    assert seconds(idle) < DEFAULTS.keep_alive_seconds == seconds(callers)


def test_rate_limit_allows_the_page() -> None:
    # Each request of HTTP/2 counts as a connection.
    _, of_page = directives("limit_conn")
    assert int(of_page.removeprefix("page_connections ")) > 4 * len(Pages().paths)


def test_file_limit_covers_the_connections() -> None:
    # A request has two connections, and files for a large body and a large answer.
    assert int(directive("worker_rlimit_nofile")) > 2 * int(directive("worker_connections"))


def configure(upstream: int, folder: Path, changes: dict[str, str] | None = None) -> int:
    """Write nginx.conf with ports and folders of this test, and a certificate.

    Args:
        upstream: The service's port.
        folder: Where the files are written.
        changes: Further replacements in the file, by pattern.

    Returns:
        The port of https.
    """
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text()
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = [f"{name}_temp_path {folder}/{name};\n" for name in temporary]
    for pattern, ours in {
        r"^ *listen \[::\].*\n": "",
        r"listen 80;": f"listen 127.0.0.1:{free_port()};",
        r"listen 443 ": f"listen 127.0.0.1:{port} ",
        r"server 127\.0\.0\.1:8000;": f"server 127.0.0.1:{upstream};",
        # In this test all clients are on the host.
        r"^ *allow .*\n": "",
        r"(/run|/var/log/nginx|/etc/nginx/tls)/": f"{folder}/",
        r"^http \{": "http {\n" + "".join(folders),
        **(changes or {}),
    }.items():
        text, count = re.subn(pattern, ours, text, flags=re.MULTILINE)
        assert count, pattern
    (folder / "nginx.conf").write_text(text)
    subject = ["-subj", "/CN=localhost", "-days", "1"]
    files = ["-keyout", folder / "foretell.key", "-out", folder / "foretell.crt"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files],
        check=True,
        capture_output=True,
    )
    return port


def command(folder: Path, *arguments: str) -> list[str | Path]:
    assert NGINX is not None
    return [NGINX, "-e", "stderr", "-c", folder / "nginx.conf", *arguments]


@contextmanager
def proxy(
    server: Server, folder: Path, changes: dict[str, str] | None = None
) -> Iterator[httpx.Client]:
    """nginx in front of a server."""
    port = configure(int(server.url.rpartition(":")[2]), folder, changes)
    # A single process keeps the user that may write to the folder.
    flags = "daemon off; master_process off; error_log stderr notice;"
    with (
        Program(command(folder, "-g", flags), folder / "nginx.log", r"\[notice\].* (nginx/[\d.]+)"),
        httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=False, timeout=30) as client,
    ):
        yield client


@needs_nginx
def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    configure(8000, tmp_path)
    done = subprocess.run(command(tmp_path, "-t"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr, done.stderr


@needs_nginx
def test_service_is_reached_and_its_operations_are_not(tmp_path: Path) -> None:
    write_bundle(tmp_path / "repository", Spec())
    with (
        Server(tmp_path / "repository", tmp_path / "log") as server,
        proxy(server, tmp_path) as client,
    ):
        answer = client.post("/forecast", json=BODY, headers={"X-Request-Id": "mine"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "mine")
        made = client.post("/forecast", json=BODY).headers["x-request-id"]
        until(lambda: f'"{made}"' in server.log)

        # As a browser that opens the page again and again.
        paths = [path for path in Pages().paths if path.startswith("/page/")]
        assert {client.get(path).status_code for path in 3 * paths} == {200}

        for path in ("/metrics", "/readyz", "/healthz", "/%6detrics", "/v2/repository/index"):
            hidden = client.post(path) if "index" in path else client.get(path)
            assert hidden.status_code == 404, path
            assert hidden.json()["error"]["message"] == "not served here"
        # Errors of the service pass unchanged.
        assert client.get("/nowhere").json() != hidden.json()

        context = ssl._create_unverified_context()
        large = HTTPSConnection("127.0.0.1", client.base_url.port, context=context)
        large.putrequest("POST", "/forecast")
        large.putheader("Content-Length", str(DEFAULTS.max_body_bytes + 1))
        large.endheaders()
        refused = large.getresponse()
        assert (refused.status, b'"too_large"' in refused.read()) == (413, True)
        large.close()

        server.stop()
        unavailable = client.post("/forecast", json=BODY)
        assert (unavailable.status_code, unavailable.headers["retry-after"]) == (503, "5")
        assert unavailable.json()["error"]["type"] == "unavailable"


@needs_nginx
def test_service_works_below_a_prefix(tmp_path: Path) -> None:
    write_bundle(tmp_path / "repository", Spec())
    prefixed = {
        r"location (/|/page/) \{": r"location /part\1 {",
        # The proxy may strip one of two prefixes, and the service the other.
        r"\^/\(metrics": "^(/part)+/(metrics",
        r"location /v2/": "location ~ ^(/part)+/v2/",
    }
    taken_off = r"(location /part(/|/page/) \{[^}]+proxy_pass http://foretell);", r"\1\2;"
    with Server(tmp_path / "repository", tmp_path / "log", root_path="/part") as server:
        for changes in (prefixed, prefixed | dict([taken_off])):
            with proxy(server, tmp_path, changes) as client:
                assert client.post("/part/forecast", json=BODY).status_code == 200
                page = client.get("/part", headers={"Accept": "text/html"}, follow_redirects=True)
                assert page.url.path == "/part/"
                assert page.text.startswith("<!doctype html>")
                assert client.get("/part/page/app.js").status_code == 200
                assert client.get(client.get("/part/").json()["links"]["models"]).json()
                for path in ("metrics", "v2/repository/index"):
                    assert client.get(f"/part/{path}").status_code == 404
                    assert client.get(f"/part/part/{path}").status_code == 404
