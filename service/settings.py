"""Settings of the server: `FORETELL_*` variables, overridden by command-line flags."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from foretell.bundle.layout import check_name, check_version
from foretell.service.errors import StartError


def _of_text(read: Callable[[str], object]) -> BeforeValidator:
    """Reads a text, as the environment has it; what is no text any more passes."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


DeviceChoice = Literal["auto", "cpu", "cuda"]
LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
VersionChoice = Literal["all", "latest"]
LoadChoice = Literal["start", "on-demand"]
Positive = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, BeforeValidator(lambda value: _measured(value, _BYTES, _SIZES)), Field(ge=1)]
Duration = Annotated[float, BeforeValidator(lambda value: _measured(value, _SECONDS, _TIMES))]
Seconds = Annotated[Duration, Field(gt=0, le=86400)]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=256)]
SecretKeys = Annotated[tuple[SecretStr, ...], NoDecode, _of_text(lambda text: _keys(text))]
Pins = Annotated[dict[str, str], NoDecode, _of_text(lambda text: _pins(text))]
References = Annotated[tuple[str, ...], NoDecode, _of_text(lambda text: _references(text))]
Models = Annotated[Path | str, BeforeValidator(lambda value: _models(value))]
Origins = Annotated[tuple[str, ...], NoDecode, _of_text(lambda text: _origins(text))]
RootPath = Annotated[str, BeforeValidator(lambda value: _root_path(value))]

_PREFIX = "FORETELL_"
# What begins a path of the service itself.
OWN_PATHS = {
    *("backtest", "docs", "forecast", "healthz", "metrics", "models", "nixtla"),
    *("openapi.json", "page", "readyz", "v1", "v2"),
}
# Of characters that no browser or proxy writes in another way.
_ROOT_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*")
# What browsers send: a scheme and a host, and nothing behind it.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s,*]+")
_BYTES = {"": 1, "b": 1} | {
    unit + ending: base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in ((letter, 1000), (f"{letter}i", 1024))
    for ending in ("", "b")
}
_SIZES = "bytes, or a size such as 512MiB, 64MB or 1G"
_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMES = "seconds, or a time such as 500ms, 30s, 5m or 1h"
# What pydantic says of values, in our words.
_EXPECTED = {
    "bool_parsing": "true or false",
    "int_parsing": "a whole number",
    "literal_error": "{expected}",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le:g}",
}


class Settings(BaseSettings):
    """Everything an operator can set.

    Attributes:
        models: The repository, `<models>/<name>/<version>/`: a folder, or the URL of a place in
            object storage, which is a text.
        cache: Folder for what is fetched from there; `foretell` among the user's caches if None.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        root_path: What a proxy puts before all paths, such as `/forecasts`; whether it takes it off
            again or not.
        operations_port: Port for probes and metrics, which the other one then does not answer; None
            has them on the same.
        device: `cuda` refuses to start without a working GPU; `auto` takes one if it works.
        workers: Processes that read requests and write answers; from two on, one more runs the
            models for all of them.
        threads: Threads that run models on the CPU; the usable CPUs if None. On CUDA there is one a
            GPU.
        versions: Whether `all` versions of a model are loaded, or the `latest` of each.
        pin: `name@version`, separated by commas: the version that a name means, where that is not
            the newest one loaded.
        load: Whether models are loaded at the `start`, or `on-demand`, when they are first asked
            for; they then leave memory again for others.
        keep: `name` or `name@version`, separated by commas: models that are loaded at the start all
            the same, and stay.
        max_loaded: Most models in memory that were loaded on demand; if None, as many as fit.
        load_wait_seconds: Most time that a request waits for its model to be loaded.
        watch_seconds: How often the repository is looked at for versions that came, changed or
            went; never if None.
        max_memory_bytes: Most memory of the process that runs the models: one that would exceed it
            is not loaded. If None, the container's limit, less what other processes need.
        max_batch: Most windows run together. If None, 128 on CUDA; on the CPU what a model runs at
            the best rate, found at each load: 2 to 16.
        max_queue: Most windows that may wait for a model.
        max_queue_bytes: Most bytes that may wait for a model.
        max_inputs: Most series in a request.
        max_body_bytes: Largest request body.
        max_buffered_bytes: Most bytes held at a time, over all requests, for their bodies, to read
            large ones, and of large answers that are being sent.
        max_answer_values: Most forecast values in an answer, those of quantiles included.
        max_attention_values: Most attention weights in an answer that is JSON.
        max_horizon_multiple: Most passes of a forecast that is longer than a model's horizon.
        max_origins: Most origins in a request from which rows that it holds are forecast again.
        timeout_seconds: Time a request may take; a caller may only shorten it. A model that is
            replaced or unloaded is closed so much later.
        max_connections: Most connections to a process; further ones are refused.
        header_timeout_seconds: Time a caller has to send the headers of a request, or to take
            something of an answer.
        keep_alive_seconds: Time a connection stays open between requests; longer than that of the
            proxy in front, if there is one.
        unready_seconds: Time from when the server is told to stop, and `/readyz` says so, until it
            takes no more connections: what load balancers need to notice.
        grace_seconds: Time accepted requests have to finish when the server is told to stop.
        api_keys: Keys, separated by commas, that may ask for forecasts; everybody may if there are
            none.
        api_keys_file: A file of further ones, one on each line.
        admin_keys: Keys that may also load and unload models; nobody may if there are none.
        admin_keys_file: A file of further ones, one on each line.
        cors_origins: Origins, separated by commas, whose pages browsers let ask this server; `*` is
            any, and none is none but its own.
        traces: Whether requests are traced; needs the extra `otel`, and `OTEL_*` variables say
            where to.
        log_level: The least severe level that is logged.
        log_format: `json` is one object per line.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True)

    models: Models
    cache: Path | None = None
    host: str = "127.0.0.1"
    port: Port = 8000
    root_path: RootPath | None = None
    operations_port: Port | None = None
    device: DeviceChoice = "auto"
    workers: Count = 1
    threads: Count | None = None
    versions: VersionChoice = "all"
    pin: Pins = {}
    load: LoadChoice = "start"
    keep: References = ()
    max_loaded: Positive | None = None
    load_wait_seconds: Seconds = 5.0
    watch_seconds: Seconds | None = None
    max_memory_bytes: Bytes | None = None
    max_batch: Positive | None = None
    max_queue: Positive = 2048
    max_queue_bytes: Bytes = 256 * 1024 * 1024
    max_inputs: Positive = 1024
    max_body_bytes: Bytes = 64 * 1024 * 1024
    max_buffered_bytes: Bytes = 512 * 1024 * 1024
    max_answer_values: Positive = 10_000_000
    max_attention_values: Positive = 1_000_000
    max_horizon_multiple: Positive = 4
    max_origins: Positive = 1024
    timeout_seconds: Seconds = 30.0
    max_connections: Positive = 1024
    header_timeout_seconds: Seconds = 10.0
    keep_alive_seconds: Seconds = 75.0
    unready_seconds: Annotated[Duration, Field(ge=0, le=86400)] = 0.0
    grace_seconds: Seconds = 30.0
    api_keys: SecretKeys = ()
    api_keys_file: Path | None = None
    admin_keys: SecretKeys = ()
    admin_keys_file: Path | None = None
    cors_origins: Origins = ()
    traces: bool = False
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"

    @model_validator(mode="after")
    def _a_request_fits(self) -> Self:
        if self.max_inputs > self.max_queue:
            raise ValueError(
                f"max_inputs ({self.max_inputs}) is over max_queue ({self.max_queue}): "
                "a request of that size could never be accepted"
            )
        if self.port and self.port == self.operations_port:
            raise ValueError(f"port and operations_port are the same ({self.port})")
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

        Empty variables are as good as none, but for those of keys: a server must not be open to
        everybody because a key did not reach it.

        Raises:
            StartError: a value is missing or wrong; the message names its variable or flag.
        """
        try:
            settings = cls(**overrides)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] == "missing":
                raise StartError("FORETELL_MODELS or --models: required, but missing") from None
            # The place within a list is left out.
            name = "".join(_named(str(part), overrides) for part in first["loc"][:1])
            context = first.get("ctx", {})
            said = str(context.get("error", first["msg"]))
            if expected := _EXPECTED.get(first["type"]):
                said = f"expected {expected.format(**context)}, got {first['input']!r}"
            raise StartError(name + said) from None
        empty = {name.upper() for name, value in os.environ.items() if not value}
        for name in ("api_keys", "api_keys_file"):
            variable = f"{_PREFIX}{name.upper()}"
            if variable in empty and not (settings.api_keys or settings.api_keys_file):
                raise StartError(
                    f"{variable}: is empty, which would let everybody in; unset it if that is meant"
                )
        return settings


def _named(field: str, flags: Mapping[str, object]) -> str:
    return f"--{field.replace('_', '-')}: " if field in flags else f"{_PREFIX}{field.upper()}: "


def _models(value: object) -> object:
    # A path would lose one of the slashes.
    return value if isinstance(value, str) and "://" in value else Path(str(value))


def _measured(value: object, units: Mapping[str, float], expected: str) -> object:
    """A number with a unit as a number; what else there is passes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([a-z]*)", value.strip().lower())
    number = float(found[1]) * units.get(found[2], math.nan) if found else math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected {expected}, got {value!r}")
    return int(number) if units is _BYTES else number


def _keys(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    if not all(keys):
        # Above all of a list that is set and empty: it would open what it was meant to close.
        raise ValueError("expected keys separated by commas, none of them empty")
    return keys


def _origins(text: str) -> list[str]:
    origins = [origin.strip() for origin in text.split(",")]
    if origins != ["*"] and not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError("expected * or origins such as https://app.example.com, without a path")
    return origins


def _root_path(value: object) -> object:
    path = str(value).strip().rstrip("/")
    if not _ROOT_PATH.fullmatch(path):
        raise ValueError(f"expected a path such as /forecasts, got {value!r}")
    if (first := path.partition("/")[2].partition("/")[0]) in OWN_PATHS:
        raise ValueError(f"/{first} is a path of the service itself; expected another one")
    return path


def _references(text: str) -> list[str]:
    found = [each.strip() for each in text.split(",")]
    for each in found:
        name, at, version = each.partition("@")
        check_name(name)
        if at:
            check_version(version)
    return found


def _pins(text: str) -> dict[str, str]:
    pairs = [pin.strip().partition("@") for pin in text.split(",")]
    pins = {check_name(name): check_version(version) for name, _, version in pairs}
    if len(pins) < len(pairs):
        raise ValueError("a model is pinned twice")
    return pins
