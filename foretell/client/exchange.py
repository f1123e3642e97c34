"""Requests, retries and pauses as steps, which both clients run."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from foretell.client.errors import (
    ConnectionFailedError,
    ForetellError,
    InvalidInputError,
    ServerError,
    TimedOutError,
    refusal,
    retry_after,
)

Result = TypeVar("Result")
Read = TypeVar("Read")

KEY_VARIABLE = "FORETELL_KEY"
# Added to the client's timeout, so that the server times out first and explains why.
_GRACE_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_LONGEST_SECONDS = 86_400
# Tries if the connection fails, as when a server restarts. The pause doubles after each try.
_CONNECTION_TRIES, _FIRST_PAUSE = 4, 0.1
# Pause without a Retry-After.
_BUSY_PAUSE = 1.0
# Random share added to a pause, so that clients do not return all at once.
_SPREAD = 0.2
_BUSY = {429, 503}


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        method: HTTP method.
        url: Path below the server's address.
        params: Query parameters.
        content: Body.
        headers: Headers besides those of every request.
    """

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """A pause in seconds."""

    seconds: float


# A generator yields the next step. It receives the response to a request, or the transport error.
Outcome: TypeAlias = httpx.Response | httpx.TransportError | None
Steps: TypeAlias = Generator[Ask | Pause, Outcome, Result]


def parameters_of(options: Mapping[str, object]) -> dict[str, str]:
    """Options as query parameters; those that are None are left out."""
    return {name: str(value) for name, value in options.items() if value is not None}


def call(ask: Ask, retry_for: float) -> Steps[httpx.Response]:
    """Send a request until it is answered; sent twice, it changes nothing the second time.

    Args:
        ask: The request.
        retry_for: Seconds from the first try within which the request is retried.

    Raises:
        ForetellError: the last try failed.
    """
    end = time.monotonic() + retry_for
    broken = busy = 0
    while True:
        outcome = yield ask
        assert outcome is not None  # noqa: S101 - requests have an outcome
        if isinstance(outcome, httpx.Response):
            if outcome.is_success:
                return outcome
            error = refusal(outcome)
            wait = None
            if outcome.status_code in _BUSY:
                wait = retry_after(outcome)
                if wait is None:
                    wait = _BUSY_PAUSE * 2**busy
                busy += 1
        else:
            error = _broken(outcome)
            broken += 1
            is_late = isinstance(outcome, httpx.TimeoutException)
            tries = 0 if is_late else _CONNECTION_TRIES
            wait = _FIRST_PAUSE * 2 ** (broken - 1) if broken < tries else None
        if wait is None:
            raise error
        wait *= 1 + _SPREAD * random.random()  # noqa: S311 - not a secret
        if time.monotonic() + wait > end:
            raise error
        yield Pause(wait)


def post_json(path: str, body: object, wanted: TypeAdapter[Read], retry_for: float) -> Steps[Read]:
    """Post a JSON body and parse the answer.

    Raises:
        ForetellError: there is no answer, or one of another type.
    """
    content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    response = yield from call(Ask("POST", path, {}, content, headers), retry_for)
    return read_json(response, wanted)


def _broken(error: httpx.TransportError) -> ForetellError:
    try:
        url = str(error.request.url)
    except RuntimeError:  # raised by httpx if the error has no request
        url = ""
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return TimedOutError(f"{url}: no answer in time ({reason})")
    return ConnectionFailedError(f"{url}: {reason}")


def read_json(response: httpx.Response, wanted: TypeAdapter[Read]) -> Read:
    """The parsed body of a response.

    Raises:
        ServerError: the body is not of that type.
    """
    try:
        return wanted.validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise ServerError(
            f"{response.url}: not an answer of foretell: {place}: {first['msg']}",
            status=response.status_code,
        ) from None


def address(url: str) -> tuple[httpx.URL, httpx.BasicAuth | None]:
    """The server's address, and the user and password in it, for a proxy before the server.

    HTTP is the default scheme. Messages and logs contain the address, so its password is removed.

    Raises:
        InvalidInputError: the URL is invalid.
    """
    shown = re.sub(r"[^/@]*@", "", url, count=1)[:100]
    full = url if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) else f"http://{url}"
    try:
        found = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"{str(error)[:200]}: {shown!r}", place="url") from None
    try:
        # Connecting encodes the name in the same way. IPv6 addresses pass unchanged.
        found.host.encode("idna")
    except UnicodeError:
        raise InvalidInputError(
            "invalid host name: expected 1 to 63 letters, digits and hyphens between dots, got "
            f"{shown!r}",
            place="url",
        ) from None
    if found.scheme not in ("http", "https") or not found.host:
        raise InvalidInputError(
            f"expected an address such as http://localhost:8000, got {shown!r}", place="url"
        )
    caller = httpx.BasicAuth(found.username, found.password) if found.userinfo else None
    return found.copy_with(userinfo=None, query=None, fragment=None), caller


def connection(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Arguments of both httpx clients; see `Client`.

    Raises:
        InvalidInputError: an argument is invalid.
    """
    base_url, auth = address(url)
    # Without a limit on the wait for a free connection of the pool.
    limits = httpx.Timeout(
        timeout + _GRACE_SECONDS, connect=min(timeout, _CONNECT_SECONDS), pool=None
    )
    sent = headers(key, timeout)
    return {"base_url": base_url, "auth": auth, "headers": sent, "timeout": limits}


def headers(key: str | None, timeout: float) -> dict[str, str]:
    """Headers of every request.

    Args:
        key: API key; if None, the value of the environment variable.
        timeout: Seconds to wait for an answer; sent to the server.

    Raises:
        InvalidInputError: the key cannot be sent in a header, or the timeout is out of range.
    """
    if not 0 < timeout <= _LONGEST_SECONDS:
        raise InvalidInputError(
            f"expected more than 0 and at most {_LONGEST_SECONDS:g} seconds, got {timeout:g}",
            place="timeout",
        )
    found = {"X-Timeout-Ms": str(max(1, round(timeout * 1000)))}
    key = os.environ.get(KEY_VARIABLE) if key is None else key
    if key:
        if not re.fullmatch(r"[\x21-\x7e]+", key):
            raise InvalidInputError(
                "expected visible ASCII characters without spaces, got others", place="key"
            )
        found["Authorization"] = f"Bearer {key}"
    return found
