"""The errors of the service, and the answers that they become; needs no library for HTTP."""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self, TypeVar

from foretell.bundle.nearness import Index, listed

# Most characters of a name in a message.
_SHOWN = 64
# How alike a name has to be for a hint; a wrong hint costs nothing.
_ALIKE = 0.6

_Error = TypeVar("_Error", bound=BaseException)


class StartError(Exception):
    """The server cannot start; the message says what to change."""


class ServiceError(Exception):
    """An error that is answered to the client.

    Attributes:
        type: A short name that stays the same over releases.
        status: The HTTP status of its answer.
        message: What was expected and what came.
        param: The exact place in the request, such as `inputs[3].series[17]`, or None.
        retry_after: Whole seconds after which to try again, where that may help.
    """

    type: ClassVar[str] = "service_error"
    status: ClassVar[int] = 500
    _types: ClassVar[dict[str, builtins.type[ServiceError]]] = {}
    _headers: Mapping[str, str] = MappingProxyType({})

    def __init_subclass__(cls, *, type: str = "", status: int = 0) -> None:  # noqa: A002
        cls.type = type or cls.type
        cls.status = status or cls.status
        cls._types.setdefault(cls.type, cls)

    def __init__(self, message: str, *, param: str | None = None, retry_after: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its answer that other answers have not."""
        later = {"Retry-After": str(self.retry_after)} if self.status in (429, 503) else {}
        return {**later, **self._headers}


class UnreadableError(ServiceError, type="unreadable", status=400):
    """The body is not what its headers promise, or not JSON."""


class UnsupportedMediaError(ServiceError, type="unsupported_media", status=415):
    """The body is of a type, or compressed in a way, that this server does not read."""

    def __init__(self, message: str, *, param: str, accepted: Iterable[str]) -> None:
        super().__init__(message, param=param)
        name = "Accept-Encoding" if param == "Content-Encoding" else "Accept"
        self._headers = {name: ", ".join(accepted)}


class SlowBodyError(ServiceError, type="slow_body", status=408):
    """The client did not send the whole body in time."""

    # The rest of the body would come before another request.
    _headers = MappingProxyType({"Connection": "close"})


class UnauthorizedError(ServiceError, type="unauthorized", status=401):
    """The request has no key, or not one of this server's."""

    _headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class ForbiddenError(ServiceError, type="forbidden", status=403):
    """The key does not allow this, or nothing does."""


class TooLargeError(ServiceError, type="too_large", status=413):
    """The body is over the limit."""


class InvalidInputError(ServiceError, type="invalid_input", status=422):
    """The request does not fit the model or the interface."""


class NotSupportedError(ServiceError, type="not_supported", status=422):
    """A request that is well formed and that this server cannot fulfil."""


class UnknownModelError(ServiceError, type="unknown_model", status=404):
    """No model of that name is served."""

    @classmethod
    def among(cls, name: str, known: Index, where: str) -> Self:
        """The error for a name that is not among those known; `where` says where those are."""
        some = listed(known.names) or "none"
        meant = known.nearest(name, _ALIKE)
        hint = f"; did you mean {meant!r}?" if meant else ""
        return cls(f"no model {name[:_SHOWN]!r}; {where}: {some}{hint}", param="model")


class UnknownVersionError(ServiceError, type="unknown_version", status=404):
    """The model is served, but not in that version."""


class NoExampleError(ServiceError, type="no_example", status=404):
    """The model is served, and its bundle has no example window."""


class QueueFullError(ServiceError, type="queue_full", status=429):
    """Too much work is waiting for the model."""


class BuffersFullError(ServiceError, type="buffers_full", status=503):
    """Too many bytes of requests are held, of this client or of others."""


class DeadlineExceededError(ServiceError, type="deadline_exceeded", status=504):
    """The answer was not ready in time."""


class ClientDisconnectedError(ServiceError, type="client_disconnected", status=499):
    """The client disconnected before the answer was ready; the status is that of nginx."""


class NotReadyError(ServiceError, type="not_ready", status=503):
    """The model is not loaded, or the server is stopping."""


class ModelLoadingError(ServiceError, type="model_loading", status=503):
    """The model is still being loaded after the time that a request waits for it."""


class LoadFailedError(ServiceError, type="load_failed", status=409):
    """A version was not loaded on request, and what was served before still is.

    The request fails again until the bundle is replaced, or memory is free.
    """


class ShortageError(LoadFailedError, type="load_shortage"):
    """A version was not loaded for want of memory or disk, or because a file could not be read."""


class ModelFailedError(ServiceError, type="model_failed", status=503):
    """The model did not run."""


class DeviceLostError(ServiceError, type="device_lost", status=503):
    """The GPU of this run does not work any more; others may."""


class EngineLostError(ServiceError, type="engine_lost", status=503):
    """The engine process has ended, and its replacement is not ready yet."""


def kept(error: _Error) -> _Error:
    """The same error without traceback and context, for one that is kept.

    The frames of a traceback hold what they worked on. If one of them holds the error too, all of
    it stays in memory until garbage is collected.
    """
    error.__context__ = None
    return error.with_traceback(None)


def let_go(error: BaseException) -> None:
    """Free what the frames hold that an error, and those that led to it, passed through.

    Call it once the error has left them. Frames that still run, or will continue, are left alone.
    Tracebacks can still be printed afterwards.
    """
    cause: BaseException | None = error
    seen = set[int]()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        trace = cause.__traceback__
        while trace is not None:
            # Up to Python 3.12, clearing the frame of a generator would end it.
            if not _will_continue(trace):
                # A frame that still runs raises this.
                with suppress(RuntimeError):
                    trace.tb_frame.clear()
            trace = trace.tb_next
        if cause.__suppress_context__:
            # It is never printed, and pydantic's errors hold what was validated.
            cause.__context__ = None
        cause = cause.__cause__ or cause.__context__


_YIELD = dis.opmap["YIELD_VALUE"]
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _will_continue(trace: TracebackType) -> bool:
    """Whether a frame is a suspended coroutine or generator that has caught the error."""
    frame = trace.tb_frame
    code, at = frame.f_code, frame.f_lasti
    # A coroutine that the error has ended is still at the instruction that raised it.
    return bool(code.co_flags & _GENERATORS) and at != trace.tb_lasti and code.co_code[at] == _YIELD


def to_wire(error: ServiceError) -> dict[str, Any]:
    """An error for another process of the server, in what JSON can express."""
    return {"type": error.type, **error.__dict__}


def from_wire(fields: Mapping[str, Any]) -> ServiceError:
    """The error that `to_wire` was called with."""
    kind = ServiceError._types.get(fields["type"], ServiceError)  # noqa: SLF001
    error = kind.__new__(kind, fields["message"])
    error.__dict__.update({name: value for name, value in fields.items() if name != "type"})
    return error


def error_object(error: ServiceError) -> dict[str, str | None]:
    """An error as the answer has it."""
    return error_fields(error.status, error.type, error.message, error.param)


def error_fields(
    status: int, kind: str, message: str, param: str | None = None
) -> dict[str, str | None]:
    return {"code": str(status), "message": message, "param": param, "type": kind}


def is_inference(path: str) -> bool:
    return path == "/v2" or path.startswith("/v2/")


def error_body(path: str, error: Mapping[str, str | None]) -> dict[str, Any]:
    """The body of an error's answer, as the clients of a request's path read it."""
    place = f"{error['param']}: " if error["param"] else ""
    if is_inference(path):
        # The Open Inference Protocol has one text, which its clients show as it is.
        return {"error": f"{place}{error['message']}"}
    if path == "/nixtla" or path.startswith("/nixtla/"):
        return {"detail": f"{place}{error['message']}"}
    return {"error": error}


# For the OpenAPI document.
_DESCRIPTIONS = {
    400: "The body is not what its headers say, or not JSON.",
    401: "The key is missing, or not one of this server's.",
    403: "The key does not allow this, or the server has no admin keys.",
    404: "Unknown model or version, or it has no example.",
    408: "The body came too slowly.",
    409: "The bundle was refused; the version before it still answers.",
    413: "The body is over the limit.",
    415: "Not in a form that is read; see `Accept` or `Accept-Encoding`.",
    422: "The request does not fit the model.",
    429: "Too many requests are queued; see `Retry-After`.",
    503: "The model is not ready, or failed, or there is no room; see `Retry-After`.",
    504: "The deadline passed.",
}


def refusals(kind: type, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, for FastAPI: error bodies of a kind, by their statuses."""
    return {status: {"model": kind, "description": _DESCRIPTIONS[status]} for status in statuses}
