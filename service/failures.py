"""The one table from domain errors to statuses, and the error object of every answer."""

from __future__ import annotations

from http import HTTPStatus

from service import errors

_STATUS: dict[type[errors.ServiceError], int] = {
    errors.UnreadableError: HTTPStatus.BAD_REQUEST,
    errors.UnknownModelError: HTTPStatus.NOT_FOUND,
    errors.UnknownVersionError: HTTPStatus.NOT_FOUND,
    errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotSupportedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.QueueFullError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.BuffersFullError: HTTPStatus.TOO_MANY_REQUESTS,
    # nginx's status for a caller who hung up; only logs and metrics see it.
    errors.CallerGoneError: 499,
    errors.NotReadyError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ModelFailedError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}


def status_of(error: errors.ServiceError) -> int:
    """The HTTP status of an error."""
    return int(_STATUS[type(error)])


def error_object(error: errors.ServiceError) -> dict[str, str | None]:
    """An error as the answer has it."""
    return error_fields(status_of(error), error.type, error.message, error.param)


def error_fields(
    status: int, kind: str, message: str, param: str | None = None
) -> dict[str, str | None]:
    """The members of an error object."""
    return {"code": str(status), "message": message, "param": param, "type": kind}
