"""Settings of the server: `FORETELL_*` variables, overridden by command-line flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.errors import StartError

DeviceChoice = Literal["auto", "cpu", "cuda"]
LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86400)]

_PREFIX = "FORETELL_"
_MOST_WORKERS = 256


class Settings(BaseSettings):
    """Everything an operator can set.

    Attributes:
        models: The repository, `<models>/<name>/<version>/`.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        device: `cuda` refuses to start without a working GPU; `auto` takes one if it works.
        workers: Threads that run a model on the CPU; one per usable CPU if None. On CUDA a model
            always has one.
        max_batch: Most windows run together.
        max_queue: Most windows that may wait for a model.
        max_inputs: Most series in a request.
        max_body_bytes: Largest request body.
        max_buffered_bytes: Most bytes of request bodies held at a time, over all requests.
        max_attention_values: Most attention weights in an answer.
        timeout_seconds: Time a request may take; a caller may only shorten it.
        grace_seconds: Time accepted requests have to finish when the server is told to stop.
        log_level: The least severe level that is logged.
        log_format: `json` is one object per line.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    models: Path
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    device: DeviceChoice = "auto"
    workers: Annotated[int, Field(ge=1, le=_MOST_WORKERS)] | None = None
    max_batch: Positive = 32
    max_queue: Positive = 2048
    max_inputs: Positive = 1024
    max_body_bytes: Positive = 16 * 1024 * 1024
    max_buffered_bytes: Positive = 256 * 1024 * 1024
    max_attention_values: Positive = 1_000_000
    timeout_seconds: Seconds = 30.0
    grace_seconds: Seconds = 30.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"

    @model_validator(mode="after")
    def _a_request_fits(self) -> Self:
        if self.max_inputs > self.max_queue:
            raise ValueError(
                f"max_inputs ({self.max_inputs}) is over max_queue ({self.max_queue}): "
                "a request of that size could never be accepted"
            )
        if self.max_body_bytes > self.max_buffered_bytes:
            raise ValueError(
                f"max_body_bytes ({self.max_body_bytes}) is over max_buffered_bytes "
                f"({self.max_buffered_bytes}): a body of that size could never be accepted"
            )
        return self

    @classmethod
    def unknown(cls) -> list[str]:
        """Variables of the environment that look like a setting's and are none."""
        known = {f"{_PREFIX}{name.upper()}" for name in cls.model_fields}
        return sorted(
            name
            for name in os.environ
            if name.upper().startswith(_PREFIX) and name.upper() not in known
        )

    @classmethod
    def read(cls, **overrides: Any) -> Self:  # noqa: ANN401 - pydantic checks them
        """Settings from the environment and the given values, which win.

        Raises:
            StartError: a value is missing or wrong; the message names its variable.
        """
        try:
            return cls(**overrides)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] == "missing":
                raise StartError("FORETELL_MODELS or --models: required, but missing") from None
            name = "".join(f"{_PREFIX}{str(part).upper()}: " for part in first["loc"])
            raise StartError(f"{name}{first['msg']}") from None
