"""Settings of the server: `FORETELL_*` variables, overridden by command-line flags."""

from __future__ import annotations

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


class Settings(BaseSettings):
    """Everything an operator can set.

    Attributes:
        models: The repository, `<models>/<name>/<version>/`.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        device: `cuda` refuses to start without a working GPU; `auto` takes one if it works.
        workers: Threads that run a model on the CPU; one per usable core if None. On CUDA a model
            always has one.
        max_batch: Most windows run together.
        max_queue: Most windows that may wait for a model.
        max_inputs: Most series in a request.
        max_body_bytes: Largest request body.
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
    workers: Positive | None = None
    max_batch: Positive = 32
    max_queue: Positive = 2048
    max_inputs: Positive = 1024
    max_body_bytes: Positive = 16 * 1024 * 1024
    max_attention_values: Positive = 1_000_000
    timeout_seconds: Seconds = 30.0
    grace_seconds: Seconds = 30.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"

    @model_validator(mode="after")
    def _a_request_fits_the_queue(self) -> Self:
        if self.max_inputs > self.max_queue:
            raise ValueError(
                f"max_inputs ({self.max_inputs}) is over max_queue ({self.max_queue}): "
                "a request of that size could never be accepted"
            )
        return self

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
            name = "".join(f"{_PREFIX}{str(part).upper()}: " for part in first["loc"])
            raise StartError(f"{name}{first['msg']}") from None
