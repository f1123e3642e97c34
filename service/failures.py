"""The one table from domain errors to statuses, and the error object of every answer."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from foretell.service import errors

_STATUS: dict[type[errors.ServiceError], int] = {
    errors.UnreadableError: HTTPStatus.BAD_REQUEST,
    errors.UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    errors.ForbiddenError: HTTPStatus.FORBIDDEN,
    errors.UnknownModelError: HTTPStatus.NOT_FOUND,
    errors.UnknownVersionError: HTTPStatus.NOT_FOUND,
    errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotSupportedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.QueueFullError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.BuffersFullError: HTTPStatus.TOO_MANY_REQUESTS,
    # nginx's status for a caller who hung up; only logs and metrics see it.
    errors.CallerGoneError: 499,
    # Trying again does not help until the bundle is another one, or memory is free.
    errors.LoadFailedError: HTTPStatus.BAD_REQUEST,
    errors.NotReadyError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ModelFailedError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeviceLostError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}

_INFERENCE = "/v2"


def status_of(error: errors.ServiceError) -> int:
    """The HTTP status of an error."""
    return int(_STATUS[type(error)])


def headers_of(error: errors.ServiceError) -> dict[str, str]:
    """The headers that an error's answer needs besides its body."""
    if isinstance(error, errors.QueueFullError):
        return {"Retry-After": str(error.retry_after)}
    if isinstance(error, errors.UnauthorizedError):
        return {"WWW-Authenticate": "Bearer"}
    return {}


def error_object(error: errors.ServiceError) -> dict[str, str | None]:
    """An error as the answer has it."""
    return error_fields(status_of(error), error.type, error.message, error.param)


def error_fields(
    status: int, kind: str, message: str, param: str | None = None
) -> dict[str, str | None]:
    """The members of an error object."""
    return {"code": str(status), "message": message, "param": param, "type": kind}


def error_body(path: str, error: Mapping[str, str | None]) -> dict[str, Any]:
    """The body of an error's answer, as the clients of a path read it.

    Args:
        path: Of the request.
        error: The error object.
    """
    if path == _INFERENCE or path.startswith(f"{_INFERENCE}/"):
        # The Open Inference Protocol has one string, which its clients show as it is.
        places = [error["param"]] if error["param"] else []
        return {"error": ": ".join([*places, str(error["message"])])}
    return {"error": error}
