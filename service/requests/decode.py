"""From a request to a job: histories in batch arrays, and how to answer each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.service.directory import Model
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.requests.inputs import Inputs, Series
from foretell.service.requests.plan import Plan, plan
from foretell.service.requests.schemas import Envelope
from foretell.service.settings import Settings


@dataclass(frozen=True)
class Job:
    """A request, checked.

    Attributes:
        model: Who forecasts.
        plan: What of every input.
        entries: For every input what was read, or why it could not be.
        history: `[windows, context, channels]`, a window for every input that was read.
        calendar: `[windows, context + passes * horizon, features]`, if the model reads them: of
            the history's steps and of all that follow.
        metadata: To be echoed, as JSON.
    """

    model: Model
    plan: Plan
    entries: list[Series | ServiceError]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    metadata: bytes | None


def decode(envelope: Envelope, model: Model, settings: Settings) -> Job:
    """Read the rest of a request.

    Raises:
        InvalidInputError: the request does not fit the model, or none of its inputs does;
            `NotSupportedError` likewise.
    """
    count = len(envelope.inputs)
    if count > settings.max_inputs:
        raise InvalidInputError(
            f"expected at most {settings.max_inputs} inputs, got {count}", param="inputs"
        )
    wanted = plan(envelope.options, count, model, settings)
    metadata = _encode_metadata(envelope.metadata)
    entries, history, calendar = Inputs(model.manifest, wanted, count).read(envelope.inputs)
    if not len(history):
        raise next(entry for entry in entries if isinstance(entry, ServiceError))
    return Job(model, wanted, entries, history, calendar, metadata)


def _encode_metadata(metadata: dict[str, Any] | None) -> bytes | None:
    if metadata is None:
        return None
    try:
        return json.dumps(metadata, allow_nan=False).encode()
    except ValueError:
        raise InvalidInputError(
            "expected JSON values; NaN and Infinity are none", param="metadata"
        ) from None
