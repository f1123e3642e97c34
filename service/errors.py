"""What can go wrong, without a word of HTTP; `service/failures.py` maps each to a status."""

from __future__ import annotations

from typing import ClassVar


class StartError(Exception):
    """The server cannot start; the message says what to change."""


class ServiceError(Exception):
    """Something a caller is told.

    Attributes:
        type: A short name that stays the same over releases.
        message: What was expected and what came.
        param: The exact place in the request, such as `inputs[3].series[17]`, or None.
    """

    type: ClassVar[str] = "service_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class UnreadableError(ServiceError):
    """The body is not what its headers promise, or not JSON."""

    type = "unreadable"


class UnauthorizedError(ServiceError):
    """The request has no key, or not one of this server's."""

    type = "unauthorized"


class ForbiddenError(ServiceError):
    """The key does not allow this, or nothing does."""

    type = "forbidden"


class TooLargeError(ServiceError):
    """The body is over the limit."""

    type = "too_large"


class InvalidInputError(ServiceError):
    """The request does not fit the model or the interface."""

    type = "invalid_input"


class NotSupportedError(ServiceError):
    """A request that is well formed and that this server cannot fulfil."""

    type = "not_supported"


class UnknownModelError(ServiceError):
    """No model of that name is served."""

    type = "unknown_model"


class UnknownVersionError(ServiceError):
    """The model is served, but not in that version."""

    type = "unknown_version"


class QueueFullError(ServiceError):
    """Too much work is waiting.

    Attributes:
        retry_after: Whole seconds after which a new attempt may succeed.
    """

    type = "queue_full"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BuffersFullError(QueueFullError):
    """Too many bytes of requests are held that are not even queued."""

    type = "buffers_full"


class DeadlineExceededError(ServiceError):
    """The answer was not ready in time."""

    type = "deadline_exceeded"


class CallerGoneError(ServiceError):
    """The caller hung up before the answer was ready; nobody reads this error."""

    type = "caller_gone"


class NotReadyError(ServiceError):
    """The model is not loaded, or the server is stopping."""

    type = "not_ready"


class LoadFailedError(ServiceError):
    """A version was not loaded on request; the message says why, and what was served still is."""

    type = "load_failed"


class ModelFailedError(ServiceError):
    """The model did not run."""

    type = "model_failed"


class DeviceLostError(ServiceError):
    """The GPU that was to run the model runs nothing any more; others may."""

    type = "device_lost"
