"""Requests to registries that answer with challenges, redirects and faults."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from foretell.storage.errors import StorageError
from foretell.storage.oci import bodies
from foretell.storage.oci import client as module
from foretell.storage.oci.auth import RegistryAuth
from foretell.storage.oci.client import Blob, Client, MissingError
from foretell.storage.oci.reference import parse
from tests.foretell.storage.oci.conftest import log_in
from tests.support.in_thread import InThread

CONTENT = b"content of a layer" * 1000
BLOB = Blob(f"sha256:{sha256(CONTENT).hexdigest()}", len(CONTENT))
BASIC = "Basic dXNlcjpzZWNyZXQ="


class Answer(NamedTuple):
    status: int = 200
    content: bytes = b""
    headers: dict[str, str] | None = None


class Script(InThread):
    """A server whose answers a function gives, by method and path with the query.

    Attributes:
        requests: Requests, with their header `Authorization`.
    """

    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        self.requests: list[tuple[str, str]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                request = f"{self.command} {self.path}"
                header = self.headers.get("authorization", "")
                script.requests.append((request, header))
                self.rfile.read(int(self.headers.get("content-length") or 0))
                found = answer(request, header)
                self.send_response(found.status)
                headers = {"content-length": str(len(found.content)), **(found.headers or {})}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(found.content)

            do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def client(self) -> Client:
        return Client(parse(f"oci://{self.host}/models/energy"))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch, login: Path) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.0, 0.0))


def token_server(realm: Callable[[], str]) -> Callable[[str, str], Answer]:
    """Answers of a registry that demands a token, and of its token server."""

    def answer(request: str, header: str) -> Answer:
        if request.startswith(("GET /token", "POST /token")):
            return Answer(content=json.dumps({"token": "granted"}).encode())
        if header != "Bearer granted":
            scope = 'service="here",scope="repository:models/energy:pull"'
            return Answer(401, headers={"www-authenticate": f'Bearer realm="{realm()}",{scope}'})
        return Answer(content=json.dumps({"tags": ["1", "serving"]}).encode())

    return answer


@pytest.mark.parametrize(("pair", "sent"), [("", ""), ("user:secret", BASIC)])
def test_token_is_fetched_once(pair: str, sent: str, login: Path) -> None:
    """The token server gets the password, the registry only the token."""
    with Script(token_server(lambda: f"{script.url}/token")) as script:
        if pair:
            log_in(login, script.host, pair)
        client = script.client()
        for _ in range(2):
            assert client.tags() == ["1", "serving"]
        tags = "GET /v2/models/energy/tags/list?n=1000"
        wanted = "GET /token?service=here&scope=repository%3Amodels%2Fenergy%3Apull"
        granted = (tags, "Bearer granted")
        assert script.requests == [(tags, ""), (wanted, sent), granted, granted]


def test_identity_token_is_exchanged(login: Path) -> None:
    with Script(token_server(lambda: f"{script.url}/token")) as script:
        login.write_text(json.dumps({"auths": {script.host: {"identitytoken": "renew"}}}))
        assert script.client().tags() == ["1", "serving"]
        assert script.requests[1] == ("POST /token", "")


def test_refused_login_is_named(login: Path) -> None:
    def answer(request: str, header: str) -> Answer:
        if request.startswith("GET /token"):
            return Answer(401)
        return Answer(401, headers={"www-authenticate": f'Bearer realm="{script.url}/token"'})

    with Script(answer) as script:
        with pytest.raises(StorageError, match=f"unauthorized; run `docker login {script.host}`"):
            script.client().tags()
        log_in(login, script.host, "user:wrong")
        with pytest.raises(StorageError, match="refuses the saved login; run `docker login"):
            script.client().tags()


def test_redirect_to_another_server_does_not_get_the_login(login: Path) -> None:
    def answer(request: str, header: str) -> Answer:
        if header != BASIC:
            return Answer(401, headers={"www-authenticate": 'Basic realm="here"'})
        return Answer(307, headers={"location": f"{other.url}/signed?key=1"})

    with Script(lambda *_: Answer(content=CONTENT)) as other, Script(answer) as script:
        log_in(login, script.host, "user:secret")
        assert b"".join(script.client().blob(BLOB, "layer")) == CONTENT
        assert other.requests == [("GET /signed?key=1", "")]


def test_token_server_without_tls_is_refused(login: Path) -> None:
    """Only a registry that itself has no TLS may lead to one."""
    client = Client(parse("oci://registry.example/models/energy"))
    request = client._http.build_request("GET", "http://elsewhere.example/token")
    with pytest.raises(StorageError, match=r"leads to elsewhere\.example without TLS"):
        client._check_scheme(request)


def test_login_does_not_go_to_a_token_server_of_another_server(login: Path) -> None:
    """A server to which the registry leads may demand a login, and name its own token server."""

    def demand(request: str, header: str) -> Answer:
        if request.startswith("GET /token"):
            return Answer(content=b'{"token": "granted"}')
        return Answer(401, headers={"www-authenticate": f'Bearer realm="{other.url}/token"'})

    def answer(request: str, header: str) -> Answer:
        return Answer(307, headers={"location": f"{other.url}/layer"})

    with Script(demand) as other, Script(answer) as script:
        log_in(login, script.host, "user:secret")
        with pytest.raises(StorageError, match=r"layer: 127\.0\.0\.1: 401 Unauthorized$"):
            list(script.client().blob(BLOB, "layer"))
        assert other.requests == [("GET /layer", "")]


@pytest.mark.parametrize("saved", [{"identitytoken": "renew"}, {"auth": "dXNlcjpzZWNyZXQ="}])
def test_token_server_may_not_redirect(saved: dict[str, str], login: Path) -> None:
    """A redirect with status 307 would carry the identity token to another server."""

    def answer(request: str, header: str) -> Answer:
        if "/token" in request:
            return Answer(307, headers={"location": f"{other.url}/token"})
        return Answer(401, headers={"www-authenticate": f'Bearer realm="{script.url}/token"'})

    with Script(lambda *_: Answer(content=b'{"token": "a"}')) as other, Script(answer) as script:
        login.write_text(json.dumps({"auths": {script.host: saved}}))
        with pytest.raises(StorageError, match=r"/token: the token server gave no token \(307\)"):
            script.client().tags()
        assert other.requests == []


def test_requests_to_token_servers_have_time_limits() -> None:
    http = httpx.Client(timeout=20)
    login = RegistryAuth("registry.example", "https://registry.example", http)
    request = login._token_request({"realm": "https://registry.example/token"}, None)
    assert request.extensions["timeout"]["read"] == 20


@pytest.mark.parametrize(
    ("header", "location"), [('Bearer realm="http://a:port/t"', ""), ("", "http://[bad/t")]
)
def test_invalid_addresses_are_named(header: str, location: str) -> None:
    def answer(request: str, _: str) -> Answer:
        if request.startswith("HEAD"):
            return Answer(404)
        if header:
            return Answer(401, headers={"www-authenticate": header})
        return Answer(202, headers={"location": location})

    with Script(answer) as script, pytest.raises(StorageError, match=r"layer: .*(IPv6|port)"):
        script.client().put_blob(BLOB, [CONTENT], "layer")


@pytest.mark.parametrize("status", [200, 500])
def test_interrupted_answer_is_named(status: int) -> None:
    """The server closes the connection before the last byte."""
    found = Answer(status, b'{"tags": ["1"]}', {"content-length": "1000"})
    with Script(lambda *_: found) as script:
        for read in (Client.tags, lambda client: client.manifest("1")):
            with pytest.raises(StorageError, match=r"cannot be reached|500 Internal"):
                read(script.client())


@pytest.mark.parametrize("status", [200, 403])
def test_large_answers_are_not_read(status: int) -> None:
    found = Answer(status, b'{"tags": [%s"1"]}' % (b'"1", ' * 2**20))
    message = r"larger than 4 MiB|403 Forbidden; run"
    with Script(lambda *_: found) as script, pytest.raises(StorageError, match=message):
        script.client().tags()


def test_slow_answers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, but all of them do not."""
    now = itertools.count(step=40)
    monkeypatch.setattr(bodies.time, "monotonic", lambda: float(next(now)))

    class Slow(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while next(left, None) is not None:
                yield b"x"

    left = iter(range(100))
    with pytest.raises(StorageError, match="layer: not complete after 600 seconds"):
        list(bodies.pieces(httpx.Response(200, stream=Slow()), "layer", 600.0))
    assert len([*left]) == 100 - 16
    left = iter(range(100))
    with pytest.raises(StorageError, match="tags: not complete after 60 seconds"):
        bodies.small(httpx.Response(200, stream=Slow()), "tags")


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"!", b"!" + CONTENT[1:], b""])
def test_other_content_than_the_digest_is_refused(content: bytes) -> None:
    with Script(lambda *_: Answer(content=content)) as script:
        with pytest.raises(StorageError, match="layer: the layer in the registry differs"):
            list(script.client().blob(BLOB, "layer"))
        with pytest.raises(StorageError, match="the content differs from the digest"):
            script.client().manifest(BLOB.digest)


def test_temporary_failures_are_repeated() -> None:
    statuses = [503, 429]

    def answer(request: str, header: str) -> Answer:
        if statuses:
            return Answer(statuses.pop())
        return Answer(content=b'{"tags": null}')

    with Script(answer) as script:
        assert script.client().tags() == []
        assert len(script.requests) == 3
        statuses.extend([500] * 9)
        with pytest.raises(StorageError, match="models/energy: 500 Internal Server Error"):
            script.client().tags()
        assert len(script.requests) == 6


def test_interrupted_upload_begins_anew() -> None:
    statuses = [201, 500]

    def answer(request: str, header: str) -> Answer:
        if request.startswith("HEAD"):
            return Answer(404)
        if request.startswith("POST"):
            return Answer(202, headers={"location": "/upload/1?state=a"})
        return Answer(statuses.pop())

    with Script(answer) as script:
        script.client().put_blob(BLOB, [CONTENT], "layer")
        methods = [request.partition(" ")[0] for request, _ in script.requests]
        assert methods == ["HEAD", "POST", "PUT", "POST", "PUT"]
        path = script.requests[-1][0]
        assert path == f"PUT /upload/1?state=a&digest={BLOB.digest.replace(':', '%3A')}"


def test_pages_of_tags_are_read_from_the_registry_only() -> None:
    following = "/v2/models/energy/tags/list?n=1000&last=1"
    pages = {True: (b'{"tags": ["1"]}', following), False: (b'{"tags": ["2"]}', "")}

    def answer(request: str, header: str) -> Answer:
        content, link = pages["last" not in request]
        return Answer(content=content, headers={"link": f'<{link}>; rel="next"'} if link else {})

    with Script(answer) as script:
        assert script.client().tags() == ["1", "2"]
        pages[True] = (b'{"tags": ["1"]}', "http://another.example/tags")
        with pytest.raises(StorageError, match="goes on at another server"):
            script.client().tags()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Answer(404), "404 Not Found"),
        (
            Answer(403, b'{"errors": [{"code": "DENIED", "message": "no"}]}'),
            "DENIED: no; run `dock",
        ),
        (Answer(content=b"<html>"), "the answer is not that of a registry"),
        (Answer(content=b"{}"), "the answer is not that of a registry"),
        (Answer(content=b"[" * 2**20), "the answer is not that of a registry"),
        (Answer(content=b"[]"), "the answer is not that of a registry"),
        (Answer(302, headers={"location": "/again"}), "redirect"),
    ],
)
def test_other_answers_are_named(found: Answer, message: str) -> None:
    with Script(lambda *_: found) as script, pytest.raises(StorageError, match=message) as caught:
        script.client().tags()
    assert isinstance(caught.value, MissingError) == (found.status == 404)


def test_digest_is_computed_where_a_registry_does_not_send_it() -> None:
    with Script(lambda *_: Answer(content=CONTENT)) as script:
        assert script.client().digest("1") == BLOB.digest
