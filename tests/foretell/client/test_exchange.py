from __future__ import annotations

import httpx
import pytest

from foretell.client.errors import (
    ConnectionFailedError,
    ForetellError,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    ServerError,
    TimedOutError,
    UnauthorizedError,
)
from foretell.client.exchange import Ask, Outcome, Pause, address, call, headers

ASK = Ask("GET", "models")
REQUEST = httpx.Request("GET", "http://server/models")


def answered(status: int, **headers: str) -> httpx.Response:
    error = {"code": str(status), "message": "wrong", "param": "model", "type": "some"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"error": error}, headers=names, request=REQUEST)


def driven(*outcomes: Outcome, retry_for: float = 60.0) -> tuple[httpx.Response, list[float]]:
    """Result of a call, and its pauses."""
    steps = call(ASK, retry_for)
    waiting = list(outcomes)
    pauses: list[float] = []
    outcome: Outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            assert not waiting
            return end.value, pauses
        except ForetellError as error:
            error.add_note(str(pauses))
            raise
        outcome = None
        if isinstance(step, Pause):
            pauses.append(step.seconds)
        else:
            assert step == ASK
            outcome = waiting.pop(0)


GOOD = httpx.Response(200, request=REQUEST)


@pytest.mark.parametrize("status", [429, 503])
def test_client_honours_retry_after(status: int) -> None:
    found, pauses = driven(
        answered(status, retry_after="3"), answered(status, retry_after="7"), GOOD
    )
    assert found is GOOD
    assert [3 <= pauses[0] <= 3.6, 7 <= pauses[1] <= 8.4] == [True, True]


def test_client_backs_off_without_retry_after() -> None:
    assert driven(GOOD) == (GOOD, [])
    _, pauses = driven(*[answered(503)] * 3, GOOD)
    assert [round(pause / 1.1) for pause in pauses] == [1, 2, 4]


def test_client_keeps_its_retry_limit() -> None:
    with pytest.raises(OverloadedError, match="wrong") as raised:
        driven(answered(429, retry_after="11"), retry_for=10)
    assert raised.value.retry_after == 11
    assert raised.value.__notes__ == ["[]"]


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.RemoteProtocolError("gone"), httpx.ReadError("")]
)
def test_failed_connection_is_retried(error: httpx.TransportError) -> None:
    found, pauses = driven(error, error, error, GOOD)
    assert found is GOOD
    assert sum(pauses) < 1
    with pytest.raises(ConnectionFailedError):
        driven(*[error] * 4)


def test_request_that_timed_out_is_not_repeated() -> None:
    error = httpx.ReadTimeout("late", request=REQUEST)
    with pytest.raises(TimedOutError, match="http://server/models: no answer in time") as raised:
        driven(error)
    assert isinstance(raised.value, TimeoutError)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInputError),
        (401, UnauthorizedError),
        (403, UnauthorizedError),
        (404, NotFoundError),
        (408, TimedOutError),
        (413, InvalidInputError),
        (415, InvalidInputError),
        (422, InvalidInputError),
        (500, ServerError),
        (502, ServerError),
        (504, TimedOutError),
    ],
)
def test_status_decides_the_error_class(status: int, kind: type[ForetellError]) -> None:
    with pytest.raises(kind, match=r"^model: wrong") as raised:
        driven(answered(status, x_request_id="7"))
    error = raised.value
    found = (error.place, error.kind, error.status, error.request_id)
    assert found == ("model", "some", status, "7")


def test_error_without_a_key_names_the_variable() -> None:
    with pytest.raises(UnauthorizedError, match="FORETELL_KEY"):
        driven(answered(401))
    REQUEST.headers["authorization"] = "Bearer x"
    try:
        with pytest.raises(UnauthorizedError, match=r"wrong\n"):
            driven(answered(401))
    finally:
        del REQUEST.headers["authorization"]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(502, text="<html>", request=REQUEST), "502 Bad Gateway, and not an answer"),
        (httpx.Response(599, json=[1], request=REQUEST), "models: 599, and not an answer"),
        (
            httpx.Response(301, headers={"location": "https://other/"}, request=REQUEST),
            "301 Moved Permanently, to https://other/; give the client that address",
        ),
    ],
)
def test_answers_of_other_servers_are_errors(response: httpx.Response, message: str) -> None:
    with pytest.raises(ServerError, match=message):
        driven(response)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("10.0.0.1", "http://10.0.0.1"),
        ("https://host/prefix/?a=1#x", "https://host/prefix/"),
        ("[::1]:80", "http://[::1]"),
    ],
)
def test_addresses(given: str, found: str) -> None:
    assert address(given) == (httpx.URL(found), None)


def test_password_for_a_proxy_is_sent_and_never_shown() -> None:
    url, auth = address("https://me:geheim@host/prefix")
    assert str(url) == "https://host/prefix"
    assert auth is not None
    sent = next(auth.auth_flow(httpx.Request("GET", url)))
    assert sent.headers["authorization"] == httpx.BasicAuth("me", "geheim")._auth_header
    for wrong in ("ftp://me:geheim@host", "me:geheim@host:port"):
        with pytest.raises(InvalidInputError, match="host") as raised:
            address(wrong)
        assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        *("", "ftp://host", "http://", "http://host:port"),
        *(f"{'a' * 64}.test:8000", "http://a..test", "https://.test"),
    ],
)
def test_wrong_addresses_are_refused(given: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^url: "):
        address(given)


def test_the_key_comes_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_KEY", "secret")
    assert headers(None, 2.5) == {"X-Timeout-Ms": "2500", "Authorization": "Bearer secret"}
    assert headers("other", 1)["Authorization"] == "Bearer other"
    assert "Authorization" not in headers("", 1)


def test_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(InvalidInputError, match=r"^key: expected visible ASCII") as raised:
        headers("geheim ß", 1)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_wrong_timeouts_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidInputError, match=r"^timeout: "):
        headers(None, seconds)
