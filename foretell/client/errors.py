"""Errors of the client: one class for each reaction of a caller."""

from __future__ import annotations

from http import HTTPStatus

import httpx


class ForetellError(Exception):
    """Base class of errors; the message is the server's, if the server sent one.

    Args:
        message: Text of the error.
        place: Place in the frame or the options.
        kind: The server's short name of the error.
        status: HTTP status.
        request_id: Request ID.

    Attributes:
        message: Text of the error.
        place: Place in the frame or the options, such as `temperature[17]`: a column and a row,
            counted from 0. None if there is no single place.
        kind: The server's short name of the error, such as `unknown_model`; stable across releases.
        status: HTTP status; None if the error is not from a server.
        request_id: Request ID, which the server also logs.
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
        """Message with its place."""
        return f"{self.place}: {self.message}" if self.place else self.message


class InvalidInputError(ForetellError, ValueError):
    """The input does not fit the model or the call; `place` names the part."""


class UnauthorizedError(ForetellError):
    """The API key is missing, unknown, or not allowed to do this."""


class NotFoundError(ForetellError, LookupError):
    """The server has no such model, version or path."""


class OverloadedError(ForetellError):
    """The server stayed too busy for as long as the client retries.

    Attributes:
        retry_after: Seconds after which to retry; None if the server named none.
    """

    retry_after: float | None = None


class TimedOutError(ForetellError, TimeoutError):
    """The server did not answer in time."""


class ServerError(ForetellError):
    """The server failed, or it is not a foretell server."""


class ConnectionFailedError(ForetellError, ConnectionError):
    """The connection failed or broke."""


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
    """The error for an unsuccessful response."""
    status = response.status_code
    kind = _BY_STATUS.get(status, ServerError)
    found = _error_object(response)
    if found is None:
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        message = f"{response.url}: {status} {phrase}".rstrip()
        if response.is_redirect:
            message += f", to {response.headers.get('location')}; give the client that address"
        else:
            message += ", and not an answer of foretell"
        found = {"message": message}
    message, place = str(found.get("message")), found.get("param")
    if kind is UnauthorizedError and "authorization" not in response.request.headers:
        message += "; give the client key=…, or set FORETELL_KEY"
    error = kind(
        message,
        place=None if place is None else str(place),
        kind=found.get("type"),
        status=status,
        request_id=response.headers.get("x-request-id"),
    )
    if isinstance(error, OverloadedError):
        error.retry_after = retry_after(response)
    return error


def retry_after(response: httpx.Response) -> float | None:
    """Seconds of the header `Retry-After`, if there is one."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):  # a date, which foretell does not send
        return None


def _error_object(response: httpx.Response) -> dict[str, str] | None:
    """The error object of the response, if it has one."""
    try:
        found = response.json()["error"]
    except (KeyError, TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None
