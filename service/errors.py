"""The errors of the service, and their answers; needs no library for HTTP."""

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
# JSON-RPC's code.
_INVALID_REQUEST = -32600
# Least similarity of a name in a hint; a wrong hint does no harm.
_ALIKE = 0.6

_Error = TypeVar("_Error", bound=BaseException)


class StartError(Exception):
    """The server cannot start; the message says what to change."""


class ServiceError(Exception):
    """An error that the client gets as an answer.

    Attributes:
        type: Short name, stable over releases.
        status: HTTP status of its answer.
        message: Expected and given values, or the failure.
        param: Exact place in the request, such as `inputs[3].series[17]`, or None.
        retry_after: Whole seconds after which a retry may succeed.
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
        """The additional headers of its answer."""
        later = {"Retry-After": str(self.retry_after)} if self.status in (429, 503) else {}
        return {**later, **self._headers}


class UnreadableError(ServiceError, type="unreadable", status=400):
    """The body does not match its headers, or is not JSON."""


class UnsupportedMediaError(ServiceError, type="unsupported_media", status=415):
    """The server does not support the type or the compression of the body."""

    def __init__(self, message: str, *, param: str, accepted: Iterable[str]) -> None:
        super().__init__(message, param=param)
        name = "Accept-Encoding" if param == "Content-Encoding" else "Accept"
        self._headers = {name: ", ".join(accepted)}


class SlowBodyError(ServiceError, type="slow_body", status=408):
    """The client did not send the whole body in time."""

    # The rest of the body would precede another request.
    _headers = MappingProxyType({"Connection": "close"})


class UnauthorizedError(ServiceError, type="unauthorized", status=401):
    """The request has no key, or an unknown one."""

    _headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class ForbiddenError(ServiceError, type="forbidden", status=403):
    """The key does not allow this request, or no key does."""


class ForeignHostError(ServiceError, type="foreign_host", status=421):
    """The Host header names another server: a page may have been led here by its own name."""


class TooLargeError(ServiceError, type="too_large", status=413):
    """The body is over the limit."""


class InvalidInputError(ServiceError, type="invalid_input", status=422):
    """The request does not fit the model or the interface."""


class NotSupportedError(ServiceError, type="not_supported", status=422):
    """The request is well formed, but this server does not support it."""


class UnknownModelError(ServiceError, type="unknown_model", status=404):
    """No model of that name is served."""

    @classmethod
    def among(cls, name: str, known: Index, where: str) -> Self:
        """The error for an unknown name; `where` is the place of the known names."""
        some = listed(known.names) or "none"
        meant = known.nearest(name, _ALIKE)
        hint = f"; did you mean {meant!r}?" if meant else ""
        return cls(f"no model {name[:_SHOWN]!r}; {where}: {some}{hint}", param="model")


class UnknownVersionError(ServiceError, type="unknown_version", status=404):
    """The model is served, but not in that version."""


class NoExampleError(ServiceError, type="no_example", status=404):
    """The model is served, but its bundle has no example window."""


class QueueFullError(ServiceError, type="queue_full", status=429):
    """Too much work is waiting for the model."""


class BuffersFullError(ServiceError, type="buffers_full", status=503):
    """The server holds too many bytes of requests, from any clients."""


class DeadlineExceededError(ServiceError, type="deadline_exceeded", status=504):
    """The answer was not ready in time."""


class ClientDisconnectedError(ServiceError, type="client_disconnected", status=499):
    """The client disconnected before the answer was ready; the status is nginx's."""


class NotReadyError(ServiceError, type="not_ready", status=503):
    """The model is not loaded, or the server is stopping."""


class ModelLoadingError(ServiceError, type="model_loading", status=503):
    """The model was not loaded within the time that a request waits for it."""


class LoadFailedError(ServiceError, type="load_failed", status=409):
    """A version could not be loaded on request; the previous model is still served.

    The request fails again until the bundle is replaced, or memory is free.
    """


class ShortageError(LoadFailedError, type="load_shortage"):
    """A version could not be loaded for lack of memory or disk, or as a file was unreadable."""


class ModelFailedError(ServiceError, type="model_failed", status=503):
    """A run of the model failed."""


class DeviceLostError(ServiceError, type="device_lost", status=503):
    """The GPU of this run has failed; others may work."""


class EngineLostError(ServiceError, type="engine_lost", status=503):
    """The engine process has ended, and its replacement is not ready yet."""


def kept(error: _Error) -> _Error:
    """Remove traceback and context from an error that is kept.

    The frames of a traceback hold their data. If one of them also holds the error, everything stays
    in memory until garbage is collected.
    """
    error.__context__ = None
    return error.with_traceback(None)


def let_go(error: BaseException) -> None:
    """Free the data of the frames in the tracebacks of an error and its causes.

    Call it once the error has left the frames. Frames that run, or will continue, are left alone.
    Tracebacks can be printed afterwards.
    """
    cause: BaseException | None = error
    seen = set[int]()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        trace = cause.__traceback__
        while trace is not None:
            # Up to Python 3.12, clearing the frame of a generator would end it.
            if not _will_continue(trace):
                # A running frame raises this.
                with suppress(RuntimeError):
                    trace.tb_frame.clear()
            trace = trace.tb_next
        if cause.__suppress_context__:
            # A suppressed context is never printed, and pydantic's errors hold the validated data.
            cause.__context__ = None
        cause = cause.__cause__ or cause.__context__


_YIELD = dis.opmap["YIELD_VALUE"]
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _will_continue(trace: TracebackType) -> bool:
    """Whether a frame is a suspended coroutine or generator that has caught the error."""
    frame = trace.tb_frame
    code, at = frame.f_code, frame.f_lasti
    # A coroutine that the error has ended stays at the instruction that raised it.
    return bool(code.co_flags & _GENERATORS) and at != trace.tb_lasti and code.co_code[at] == _YIELD


def to_wire(error: ServiceError) -> dict[str, Any]:
    """An error in JSON's types, for another process of the server."""
    return {"type": error.type, **error.__dict__}


def from_wire(fields: Mapping[str, Any]) -> ServiceError:
    """The error that `to_wire` was called with."""
    kind = ServiceError._types.get(fields["type"], ServiceError)  # noqa: SLF001
    error = kind.__new__(kind, fields["message"])
    error.__dict__.update({name: value for name, value in fields.items() if name != "type"})
    return error


def error_object(error: ServiceError) -> dict[str, str | None]:
    """The object of an error in its answer."""
    return error_fields(error.status, error.type, error.message, error.param)


def error_fields(
    status: int, kind: str, message: str, param: str | None = None
) -> dict[str, str | None]:
    return {"code": str(status), "message": message, "param": param, "type": kind}


def is_inference(path: str) -> bool:
    return path == "/v2" or path.startswith("/v2/")


def error_body(path: str, error: Mapping[str, str | None]) -> dict[str, Any]:
    """The body of an error, in the format of a path's clients."""
    place = f"{error['param']}: " if error["param"] else ""
    if is_inference(path):
        # The Open Inference Protocol has one text, which its clients show unchanged.
        return {"error": f"{place}{error['message']}"}
    if path == "/nixtla" or path.startswith("/nixtla/"):
        return {"detail": f"{place}{error['message']}"}
    if path.rstrip("/") == "/mcp":
        # Clients of the protocol show no other errors.
        text = f"{place}{error['message']}"
        return {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": _INVALID_REQUEST, "message": text, "data": error},
        }
    return {"error": error}


# For the OpenAPI document.
_DESCRIPTIONS = {
    400: "The body does not match its headers, or is not JSON.",
    401: "The key is missing or unknown.",
    403: "The key does not allow this, or the server has no admin keys.",
    404: "The model or version is unknown, or has no example.",
    408: "The body was sent too slowly.",
    409: "The bundle was refused; the previous one still answers.",
    413: "The body is over the limit.",
    415: "The format is not supported; see `Accept` or `Accept-Encoding`.",
    422: "The request does not fit the model.",
    429: "Too many requests are queued; see `Retry-After`.",
    503: "The model is not ready or has failed, or the server is full; see `Retry-After`.",
    504: "The deadline passed.",
}


def refusals(kind: type, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for FastAPI: error bodies of a kind, by status."""
    return {status: {"model": kind, "description": _DESCRIPTIONS[status]} for status in statuses}
