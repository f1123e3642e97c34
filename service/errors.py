"""What can go wrong, and how it is answered; raised everywhere, by parts that know no HTTP too."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self, TypeVar

from foretell.bundle.nearness import Index, listed

_INFERENCE = "/v2"
_NIXTLA = "/nixtla"
# Of a name in a message.
_SHOWN = 64
# Of names of models that are alike: a hint that is wrong costs nothing, the error is one anyway.
_ALIKE = 0.6


class StartError(Exception):
    """The server cannot start; the message says what to change."""


class ServiceError(Exception):
    """Something a caller is told.

    Attributes:
        type: A short name that stays the same over releases.
        status: The HTTP status of its answer.
        message: What was expected and what came.
        param: The exact place in the request, such as `inputs[3].series[17]`, or None.
        retry_after: Of a server that cannot now: whole seconds after which it may.
    """

    type: ClassVar[str] = "service_error"
    status: ClassVar[int] = 500
    retry_after: int = 1
    _headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, message: str, *, param: str | None = None, retry_after: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """What the head of its answer says besides."""
        later = {"Retry-After": str(self.retry_after)} if self.status in (429, 503) else {}
        return {**later, **self._headers}


class UnreadableError(ServiceError):
    """The body is not what its headers promise, or not JSON."""

    type = "unreadable"
    status = 400


class UnsupportedMediaError(ServiceError):
    """The body is of a type, or compressed in a way, that this server does not read."""

    type = "unsupported_media"
    status = 415

    def __init__(self, message: str, *, param: str, accepted: Iterable[str]) -> None:
        super().__init__(message, param=param)
        name = "Accept-Encoding" if param == "Content-Encoding" else "Accept"
        self._headers = {name: ", ".join(accepted)}


class SlowBodyError(ServiceError):
    """The caller did not send the whole body in time."""

    type = "slow_body"
    status = 408
    # The rest of the body would come before another request.
    _headers = MappingProxyType({"Connection": "close"})


class UnauthorizedError(ServiceError):
    """The request has no key, or not one of this server's."""

    type = "unauthorized"
    status = 401
    _headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class ForbiddenError(ServiceError):
    """The key does not allow this, or nothing does."""

    type = "forbidden"
    status = 403


class TooLargeError(ServiceError):
    """The body is over the limit."""

    type = "too_large"
    status = 413


class InvalidInputError(ServiceError):
    """The request does not fit the model or the interface."""

    type = "invalid_input"
    status = 422


class NotSupportedError(ServiceError):
    """A request that is well formed and that this server cannot fulfil."""

    type = "not_supported"
    status = 422


class UnknownModelError(ServiceError):
    """No model of that name is served."""

    type = "unknown_model"
    status = 404

    @classmethod
    def among(cls, name: str, known: Index, where: str) -> Self:
        """The error of a name that is none of those that are known.

        Args:
            name: What came.
            known: The names of models.
            where: They are.
        """
        some = listed(known.names) or "none"
        meant = known.nearest(name, _ALIKE)
        hint = f"; did you mean {meant!r}?" if meant else ""
        return cls(f"no model {name[:_SHOWN]!r}; {where}: {some}{hint}", param="model")


class UnknownVersionError(ServiceError):
    """The model is served, but not in that version."""

    type = "unknown_version"
    status = 404


class NoExampleError(ServiceError):
    """The model is served, and its bundle carries no window to try it with."""

    type = "no_example"
    status = 404


class QueueFullError(ServiceError):
    """Too much work is waiting for the model."""

    type = "queue_full"
    status = 429


class BuffersFullError(ServiceError):
    """Too many bytes of requests are held, of this caller or of others."""

    type = "buffers_full"
    status = 503


class DeadlineExceededError(ServiceError):
    """The answer was not ready in time."""

    type = "deadline_exceeded"
    status = 504


class ClientDisconnectedError(ServiceError):
    """The caller hung up before the answer was ready; nobody reads this error."""

    type = "caller_gone"
    # nginx's, of a caller who hung up; only logs and metrics see it.
    status = 499


class NotReadyError(ServiceError):
    """The model is not loaded, or the server is stopping."""

    type = "not_ready"
    status = 503


class ModelLoadingError(ServiceError):
    """The model is coming into memory, for longer than a request waits for it."""

    type = "model_loading"
    status = 503


class LoadFailedError(ServiceError):
    """A version was not loaded on request; the message says why, and what was served still is."""

    type = "load_failed"
    # The request is in order. It fails again until the bundle is another one, or memory is free.
    status = 409


class ShortageError(LoadFailedError):
    """A version was not loaded for want of memory or disk, or as a file could not be read."""

    type = "load_shortage"


class ModelFailedError(ServiceError):
    """The model did not run."""

    type = "model_failed"
    status = 503


class DeviceLostError(ServiceError):
    """The GPU that was to run the model runs nothing any more; others may."""

    type = "device_lost"
    status = 503


class EngineLostError(ServiceError):
    """The process that runs the models is not there; another one takes its place."""

    type = "engine_lost"
    status = 503


_Kept = TypeVar("_Kept", bound=BaseException)


def kept(error: _Kept) -> _Kept:
    """Make an error one that may be kept: without its traceback and its context.

    The frames of a traceback hold what they worked on. If one of them holds the error as well, all
    of it stays in memory until garbage is collected.

    Returns:
        The same error.
    """
    error.__context__ = None
    return error.with_traceback(None)


def let_go(error: BaseException) -> None:
    """Drop what the frames hold that an error, and those that led to it, came through.

    Call it when the error has left them: frames that still run, or will go on, are left alone.
    Tracebacks can be printed afterwards, too.
    """
    led: BaseException | None = error
    seen = set[int]()
    while led is not None and id(led) not in seen:
        seen.add(id(led))
        trace = led.__traceback__
        while trace is not None:
            if not _will_go_on(trace):
                # It still runs.
                with suppress(RuntimeError):
                    trace.tb_frame.clear()
            trace = trace.tb_next
        if led.__suppress_context__:
            # Nobody prints it. An error of pydantic holds what was validated.
            led.__context__ = None
        led = led.__cause__ or led.__context__


_YIELD = dis.opmap["YIELD_VALUE"]
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _will_go_on(trace: TracebackType) -> bool:
    """Whether a frame caught the error and is a coroutine that waits now, or a generator.

    Up to Python 3.12 to clear its frame would end it.
    """
    frame = trace.tb_frame
    code, at = frame.f_code, frame.f_lasti
    # One that an error ended while it waited is where it was then.
    return bool(code.co_flags & _GENERATORS) and at != trace.tb_lasti and code.co_code[at] == _YIELD


def to_wire(error: ServiceError) -> dict[str, Any]:
    """An error for another process of the server."""
    return {"type": error.type, **error.__dict__}


def from_wire(told: Mapping[str, Any]) -> ServiceError:
    """The error that `to_wire` told."""
    error = _TYPES[told["type"]].__new__(_TYPES[told["type"]], told["message"])
    error.__dict__.update({name: value for name, value in told.items() if name != "type"})
    return error


def _types(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _types(narrower)


_TYPES = {kind.type: kind for kind in _types(ServiceError)}


def error_object(error: ServiceError) -> dict[str, str | None]:
    """An error as the answer has it."""
    return error_fields(error.status, error.type, error.message, error.param)


def error_fields(
    status: int, kind: str, message: str, param: str | None = None
) -> dict[str, str | None]:
    """The members of an error object."""
    return {"code": str(status), "message": message, "param": param, "type": kind}


def is_inference(path: str) -> bool:
    """Whether a path is one of the Open Inference Protocol's."""
    return path == _INFERENCE or path.startswith(f"{_INFERENCE}/")


def _flat(error: Mapping[str, str | None]) -> str:
    """An error as one text: its place, and what is wrong there."""
    places = [error["param"]] if error["param"] else []
    return ": ".join([*places, str(error["message"])])


def error_body(path: str, error: Mapping[str, str | None]) -> dict[str, Any]:
    """The body of an error's answer, as the clients of a path read it.

    Args:
        path: Of the request.
        error: The error object.
    """
    if is_inference(path):
        # The Open Inference Protocol has one string, which its clients show as it is.
        return {"error": _flat(error)}
    if path == _NIXTLA or path.startswith(f"{_NIXTLA}/"):
        return {"detail": _flat(error)}
    return {"error": error}
