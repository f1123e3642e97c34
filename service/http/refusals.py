"""Errors of routes in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

_REASONS = {
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


def refusals(kind: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, for FastAPI.

    Args:
        kind: The type of the errors' bodies.
        statuses: Of the errors that the route may answer.
    """
    return {status: {"model": kind, "description": _REASONS[status]} for status in statuses}
