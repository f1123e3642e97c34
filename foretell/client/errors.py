"""What a call may end with: one class for each thing that a caller may do about it."""

from __future__ import annotations

from http import HTTPStatus

import httpx


class ForetellError(Exception):
    """A call has no answer; the message is the server's where there is one.

    Args:
        message: What was expected and what came.
        place: Where.
        kind: The server's short name.
        status: Of HTTP.
        request_id: Of the server.

    Attributes:
        message: What was expected and what came.
        place: Where in what was given, such as `temperature[17]`: a column and a row of the frame,
            counted from 0. None where it is not in one place.
        kind: The server's short name of it, such as `unknown_model`; it stays over releases.
        status: Of HTTP; None where no server said it.
        request_id: What the server's log calls the request.
    """

    def __init__(
        self,
        message: str,
        *,
        place: str | None = None,
        kind: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.kind = kind
        self.status = status
        self.request_id = request_id

    def __str__(self) -> str:
        """The message, after the place."""
        return f"{self.place}: {self.message}" if self.place else self.message


class InvalidInputError(ForetellError, ValueError):
    """What was given does not fit the model or the call; `place` says where."""


class UnauthorizedError(ForetellError):
    """The key is missing, is not one of the server's, or may not do this."""


class NotFoundError(ForetellError, LookupError):
    """The server has no such model, version or path."""


class OverloadedError(ForetellError):
    """The server cannot now, and could not for as long as the client may wait.

    Attributes:
        retry_after: Seconds after which it may, as far as it said; None if it did not.
    """

    retry_after: float | None = None


class TimedOutError(ForetellError, TimeoutError):
    """The answer was not there in time."""


class ServerError(ForetellError):
    """The server failed, or what answers is none of foretell."""


class ConnectionFailedError(ForetellError, ConnectionError):
    """Nobody answers at the address, or the connection broke."""


_BY_STATUS: dict[int, type[ForetellError]] = {
    400: InvalidInputError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    408: TimedOutError,
    413: InvalidInputError,
    415: InvalidInputError,
    422: InvalidInputError,
    429: OverloadedError,
    503: OverloadedError,
    504: TimedOutError,
}


def refusal(response: httpx.Response) -> ForetellError:
    """The error that an answer is."""
    status = response.status_code
    kind = _BY_STATUS.get(status, ServerError)
    said = _said(response)
    if said is None:
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        message = f"{response.url}: {status} {phrase}".rstrip()
        if response.is_redirect:
            message += f", to {response.headers.get('location')}; give the client that address"
        else:
            message += ", and not an answer of foretell"
        said = {"message": message}
    message, place = str(said.get("message")), said.get("param")
    if kind is UnauthorizedError and "authorization" not in response.request.headers:
        message += "; give the client key=…, or set FORETELL_KEY"
    error = kind(
        message,
        place=None if place is None else str(place),
        kind=said.get("type"),
        status=status,
        request_id=response.headers.get("x-request-id"),
    )
    if isinstance(error, OverloadedError):
        error.retry_after = told_to_wait(response)
    return error


def told_to_wait(response: httpx.Response) -> float | None:
    """Seconds after which to come again, if the answer says so."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):  # a date, which foretell does not send
        return None


def _said(response: httpx.Response) -> dict[str, str] | None:
    """The error object of the answer, if it has one."""
    try:
        said = response.json()["error"]
    except (KeyError, TypeError, ValueError):
        return None
    return said if isinstance(said, dict) else None
