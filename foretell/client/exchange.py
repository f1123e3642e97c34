"""What is sent when, without sending it: both clients run the same steps."""

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
    told_to_wait,
)

Result = TypeVar("Result")
Read = TypeVar("Read")

KEY_VARIABLE = "FORETELL_KEY"
# The server's own limit ends first, so that it says what happened.
_GRACE_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_LONGEST_SECONDS = 86_400
# Of a server that restarts, or that closed a connection just as it was used again: after a tenth of
# a second, then twice as long each time.
_CONNECTION_TRIES, _FIRST_PAUSE = 4, 0.1
# Where a busy server does not say for how long it is.
_BUSY_PAUSE = 1.0
# Of a pause, so that those who were sent away together do not come back together.
_SPREAD = 0.2
_BUSY = {429, 503}


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        method: Of HTTP.
        url: Below the server's address.
        params: Of the URL.
        content: The body.
        headers: Besides those of every request.
    """

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """Seconds to let pass."""

    seconds: float


# What is to be done next is yielded, and its outcome sent back: of a request the answer, or why
# there is none.
Outcome: TypeAlias = httpx.Response | httpx.TransportError | None
Steps: TypeAlias = Generator[Ask | Pause, Outcome, Result]


def call(ask: Ask, retry_for: float) -> Steps[httpx.Response]:
    """Send a request until it is answered.

    Whatever is sent is only computed on, so that sending it twice does no harm.

    Args:
        ask: The request.
        retry_for: Seconds from the first try within which there may be others.

    Raises:
        ForetellError: of the last try.
    """
    end = time.monotonic() + retry_for
    broken = busy = 0
    while True:
        outcome = yield ask
        assert outcome is not None  # noqa: S101 - of a request
        if isinstance(outcome, httpx.Response):
            if outcome.is_success:
                return outcome
            error = refusal(outcome)
            wait = None
            if outcome.status_code in _BUSY:
                wait = told_to_wait(outcome)
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
        # No secret depends on it.
        wait *= 1 + _SPREAD * random.random()  # noqa: S311
        if time.monotonic() + wait > end:
            raise error
        yield Pause(wait)


def post_json(path: str, body: object, wanted: TypeAdapter[Read], retry_for: float) -> Steps[Read]:
    """Post a body in JSON and read the answer.

    Raises:
        ForetellError: there is none, or not the one that is wanted.
    """
    content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    response = yield from call(Ask("POST", path, {}, content, headers), retry_for)
    return read_json(response, wanted)


def _broken(error: httpx.TransportError) -> ForetellError:
    try:
        url = str(error.request.url)
    except RuntimeError:  # httpx's where it has none
        url = ""
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return TimedOutError(f"{url}: no answer in time ({said})")
    return ConnectionFailedError(f"{url}: {said}")


def read_json(response: httpx.Response, wanted: TypeAdapter[Read]) -> Read:
    """An answer's JSON.

    Raises:
        ServerError: it is something else.
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
    """The server's address, of HTTP if it does not say, and who asks, for a proxy before it.

    The address is part of messages and of logs: it has no password.

    Raises:
        InvalidInputError: it is none.
    """
    shown = re.sub(r"[^/@]*@", "", url, count=1)[:100]
    full = url if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) else f"http://{url}"
    try:
        found = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"{str(error)[:200]}: {shown!r}", place="url") from None
    try:
        # As it is when a connection is made. Addresses of IPv6 pass as they are.
        found.host.encode("idna")
    except UnicodeError:
        raise InvalidInputError(
            "no host can have this name: between its dots are 1 to 63 letters, digits and hyphens: "
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
    """What both clients of httpx are made of; see `Client`.

    Raises:
        InvalidInputError: it can be none.
    """
    base_url, auth = address(url)
    # For a free connection it waits as long as it takes.
    limits = httpx.Timeout(
        timeout + _GRACE_SECONDS, connect=min(timeout, _CONNECT_SECONDS), pool=None
    )
    sent = headers(key, timeout)
    return {"base_url": base_url, "auth": auth, "headers": sent, "timeout": limits}


def headers(key: str | None, timeout: float) -> dict[str, str]:
    """Those of every request.

    Args:
        key: The caller's; the variable's if it is None.
        timeout: Seconds to wait for an answer, which the server is told.

    Raises:
        InvalidInputError: the key could never be sent, or there is no time.
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
