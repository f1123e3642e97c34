"""Settings of the server: `FORETELL_*` variables, overridden by command-line flags."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from foretell.bundle.layout import check_name, check_version
from foretell.service.errors import StartError

DeviceChoice = Literal["auto", "cpu", "cuda"]
LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
VersionChoice = Literal["all", "latest"]
LoadChoice = Literal["start", "on-demand"]
LearnChoice = Literal["actuals", "requests"]

_PREFIX = "FORETELL_"
# The first parts of the service's own paths.
OWN_PATHS = {
    *("actuals", "backtest", "docs", "forecast", "healthz", "ledger", "metrics", "models"),
    *("mcp", "nixtla", "openapi.json", "page", "readyz", "v1", "v2"),
}
# Characters that browsers and proxies never encode differently.
_ROOT_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*")
# An origin as browsers send it: a scheme and a host, without a path.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s,*]+")
# A name or an IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
# pydantic's `ByteSize` does not read Kubernetes' `Mi`, and its times do not read `30s`.
_BYTES = {"": 1, "b": 1} | {
    unit + ending: base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in ((letter, 1000), (f"{letter}i", 1024))
    for ending in ("", "b")
}
_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Our words for some of pydantic's errors.
_EXPECTED = {
    "bool_parsing": "true or false",
    "int_parsing": "a whole number",
    "literal_error": "{expected}",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le:g}",
}


def _number(text: str, units: Mapping[str, float], expected: str) -> float:
    parts = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([a-z]*)", text.strip().lower())
    number = float(parts[1]) * units.get(parts[2], math.nan) if parts else math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected {expected}, got {text!r}")
    return number


def _bytes(text: str) -> int:
    return int(_number(text, _BYTES, "bytes, or a size such as 512MiB, 64MB or 1G"))


def _seconds(text: str) -> float:
    return _number(text, _SECONDS, "seconds, or a time such as 500ms, 30s, 5m or 1h")


def _models(text: str) -> Path | str:
    # `Path` would drop one of the slashes.
    return text if "://" in text else Path(text)


def _keys(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    if not all(keys):
        # An empty list would open the server that it was meant to protect.
        raise ValueError("expected keys separated by commas, none of them empty")
    return keys


def _origins(text: str) -> list[str]:
    origins = [origin.strip() for origin in text.split(",")]
    if origins != ["*"] and not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError("expected * or origins such as https://app.example.com, without a path")
    return origins


def _hosts(text: str) -> list[str]:
    hosts = [host.strip().lower() for host in text.split(",")]
    if not all(map(_HOST.fullmatch, hosts)):
        raise ValueError(
            "expected names such as forecasts.example.com, separated by commas, without a scheme, "
            "a port or a path"
        )
    return hosts


def _root_path(text: str) -> str:
    path = text.strip().rstrip("/")
    if not _ROOT_PATH.fullmatch(path):
        raise ValueError(f"expected a path such as /forecasts, got {text!r}")
    if (first := path.partition("/")[2].partition("/")[0]) in OWN_PATHS:
        raise ValueError(f"/{first} is a path of the service itself; expected another one")
    return path


def _references(text: str) -> list[str]:
    references = [reference.strip() for reference in text.split(",")]
    for reference in references:
        name, at, version = reference.partition("@")
        check_name(name)
        if at:
            check_version(version)
    return references


def _files(text: str) -> list[Path]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        # Without files the server would serve unsigned bundles.
        raise ValueError("expected names of files separated by commas, none of them empty")
    return [Path(name) for name in names]


def _pins(text: str) -> dict[str, str]:
    pairs = [pin.strip().partition("@") for pin in text.split(",")]
    pins = {check_name(name): check_version(version) for name, _, version in pairs}
    if len(pins) < len(pairs):
        raise ValueError("a model is pinned twice")
    return pins


def _of_text(read: Callable[[str], object]) -> BeforeValidator:
    """Reads strings from the environment; other values stay unchanged."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=256)]
Port = Annotated[int, Field(ge=0, le=65535)]
Bytes = Annotated[int, _of_text(_bytes), Field(ge=1)]
Duration = Annotated[float, _of_text(_seconds)]
Seconds = Annotated[Duration, Field(gt=0, le=86400)]
Models = Annotated[Path | str, _of_text(_models)]
RootPath = Annotated[str, _of_text(_root_path)]
SecretKeys = Annotated[tuple[SecretStr, ...], NoDecode, _of_text(_keys)]
Origins = Annotated[tuple[str, ...], NoDecode, _of_text(_origins)]
Hosts = Annotated[tuple[str, ...], NoDecode, _of_text(_hosts)]
References = Annotated[tuple[str, ...], NoDecode, _of_text(_references)]
Files = Annotated[tuple[Path, ...], NoDecode, _of_text(_files)]
Pins = Annotated[dict[str, str], NoDecode, _of_text(_pins)]

_CONFIG = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True)
_Read = TypeVar("_Read", bound=BaseSettings)


class Settings(BaseSettings):
    """All settings of the server; sizes are in bytes, times in seconds.

    `docs/reference/settings.md` is made from the docstrings of the fields.
    """

    model_config = _CONFIG

    models: Models
    """The repository, `<models>/<name>/<version>/`: a folder, or a URL of object storage:
    `s3://bucket/prefix`, `gs://…`, `az://…`. Or models in registries, separated by commas:
    `oci://registry/path/name`, with `:version` for one version only."""
    cache: Path | None = None
    """Folder for bundles fetched from a URL. Default: `foretell` in `$XDG_CACHE_HOME` or
    `~/.cache`; in the images `/tmp/foretell`."""
    host: str = "127.0.0.1"
    """Name or address to listen on. `::` is every address of IPv4 and IPv6 (the default of the
    images), `0.0.0.0` every one of IPv4."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    root_path: RootPath | None = None
    """Prefix of all paths behind a proxy, such as `/forecasts`."""
    operations_port: Port | None = None
    """A separate port for probes and metrics; `port` then does not answer them."""
    device: DeviceChoice = "auto"
    """Where models run. With `cuda` the server does not start without a working GPU; with `cpu` it
    never looks for one."""
    workers: Count = 1
    """HTTP workers: processes that read requests and write answers. From 2 on, one more process,
    the engine, runs the models."""
    threads: Count | None = None
    """Threads that run models on the CPU. Default: one for each usable CPU."""
    versions: VersionChoice = "all"
    """Versions of a model to load: `all`, or the `latest`."""
    pin: Pins = {}
    """`name@version,…`: the version that a name means. Default: the newest one loaded."""
    load: LoadChoice = "start"
    """When models are loaded: all at the `start`, or `on-demand`."""
    keep: References = ()
    """`name` or `name@version`, separated by commas: models that are loaded at the start even with
    `on-demand`, and never evicted."""
    max_loaded: Positive | None = None
    """Models in memory that were loaded on demand. Default: as many as fit."""
    load_wait_seconds: Seconds = 5.0
    """Time that a request waits for its model to be loaded."""
    signed_by: Files = ()
    """Files of public keys in PEM, separated by commas. A version without a signature by one of
    them is refused, also by commands. Default: signatures are not checked."""
    watch_seconds: Seconds | None = None
    """Time between looks at the repository for changes. Default: never."""
    max_memory_bytes: Bytes | None = None
    """Memory of the process that runs the models; a model that would exceed it is not loaded.
    Default: the container's limit, less 96 MiB for each HTTP worker."""
    max_batch: Positive | None = None
    """Windows that run together. Default: 128 on a GPU; on the CPU 2 to 16, the size with the best
    rate, which is measured when a model is loaded."""
    max_queue: Positive = 2048
    """Windows that may wait for a model."""
    max_queue_bytes: Bytes = 256 * 1024 * 1024
    """Bytes of requests that may wait for a model or run."""
    max_inputs: Positive = 1024
    """Series in a request."""
    max_body_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of a request's body, decompressed."""
    max_buffered_bytes: Bytes = 512 * 1024 * 1024
    """Bytes held at one time for all bodies, to read large ones, and for answers over 64 KiB."""
    max_answer_values: Positive = 10_000_000
    """Forecast values in an answer."""
    max_attention_values: Positive = 1_000_000
    """Attention weights in an answer."""
    max_horizon_multiple: Positive = 4
    """Passes of a forecast that is longer than the model's horizon."""
    max_origins: Positive = 1024
    """Origins of a backtest or of calibration by history, or forecasts for importance, in a
    request."""
    timeout_seconds: Seconds = 30.0
    """Time for a request; the header `X-Timeout-Ms` can shorten it."""
    max_connections: Positive = 1024
    """Connections to an HTTP worker; more get 503. It is lower where the process may open fewer
    files (`ulimit -Hn`); the log then says so."""
    header_timeout_seconds: Seconds = 10.0
    """Time for the headers of a request, and for a client to read a part of an answer."""
    keep_alive_seconds: Seconds = 75.0
    """Time that a connection stays open without a request; longer than that of a proxy in front."""
    drain_delay_seconds: Annotated[Duration, Field(ge=0, le=86400)] = 0.0
    """Time after SIGTERM in which `/readyz` fails and connections are still accepted, so that load
    balancers notice."""
    grace_seconds: Seconds = 30.0
    """Time to finish accepted requests after SIGTERM."""
    api_keys: SecretKeys = ()
    """Keys for forecasts, `KEY` or `KEY NAMESPACE`, separated by commas."""
    api_keys_file: Path | None = None
    """A file of more keys, one on each line."""
    admin_keys: SecretKeys = ()
    """Keys that may also load and unload models."""
    admin_keys_file: Path | None = None
    """A file of more of them, one on each line."""
    actuals_keys: SecretKeys = ()
    """Keys that may write actual values and delete series."""
    actuals_keys_file: Path | None = None
    """A file of more of them, one on each line."""
    ledger_keys: SecretKeys = ()
    """Keys that may read scores and stored forecasts."""
    ledger_keys_file: Path | None = None
    """A file of more of them, one on each line."""
    cors_origins: Origins = ()
    """Origins, separated by commas, whose pages may call the server from a browser; `*` is any."""
    mcp: bool = False
    """Whether agents may call tools at `/mcp`, by the Model Context Protocol."""
    mcp_hosts: Hosts = ()
    """Names, separated by commas, by which clients reach `/mcp`, besides `host` and those of the
    same machine, such as `forecasts.example.com`."""
    ledger: SecretStr | None = None
    """Database that remembers forecasts and what came true: `sqlite:///PATH` or `postgresql://…`.
    Default: none."""
    ledger_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the requests, drawn at random, whose forecasts the ledger keeps."""
    ledger_learn: LearnChoice = "actuals"
    """Where actual values come from: `actuals`, `POST /actuals` alone; `requests`, the histories
    of later requests, too."""
    ledger_days: Annotated[float, Field(gt=0, le=36500)] = 400.0
    """Days after which the ledger deletes what it has written."""
    ledger_bytes: Bytes = 16 * 1024**3
    """Size above which the ledger deletes its oldest forecasts, actual values and scores."""
    ledger_queue_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of forecasts that may wait to be written; more are dropped and counted."""
    traces: bool = False
    """Whether requests are traced with OpenTelemetry."""
    log_level: LogLevel = "info"
    """`debug` adds probes and scrapes."""
    log_format: LogFormat = "json"
    """`json` or `text`."""

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

    @property
    def ports(self) -> list[int]:
        """The port of the service, and the separate port of probes and metrics, if set."""
        return [self.port] if self.operations_port is None else [self.port, self.operations_port]

    @classmethod
    def unknown(cls) -> list[str]:
        """Variables of the environment that look like settings but are unknown."""
        known = {f"{_PREFIX}{name.upper()}" for name in cls.model_fields}
        return sorted(
            name
            for name in os.environ
            if name.upper().startswith(_PREFIX) and name.upper() not in known
        )

    @classmethod
    def read(cls, **overrides: Any) -> Self:  # noqa: ANN401 - pydantic checks them
        """Settings from the environment and from overrides, which win.

        Empty variables count as unset, except those of keys without which requests may need no
        key, or bundles no signature: a lost key must not open the server.

        Raises:
            StartError: a value is missing or wrong; the message names its variable or flag.
        """
        settings, empty = _read(cls, overrides), _empty_variables()
        for keys in ("api_keys", "actuals_keys", "ledger_keys"):
            for name in (keys, f"{keys}_file"):
                variable = f"{_PREFIX}{name.upper()}"
                given = getattr(settings, keys) or getattr(settings, f"{keys}_file")
                if variable in empty and not given:
                    raise StartError(
                        f"{variable}: is empty; set a key, or unset it to serve without these keys"
                    )
        _check_signed_by(settings.signed_by)
        return settings


class _SignedBy(BaseSettings):
    model_config = _CONFIG

    signed_by: Files = ()


def read_signed_by() -> tuple[Path, ...]:
    """The setting `signed_by` alone, for commands that read bundles without a server.

    Raises:
        StartError: the variable is empty or wrong; the message names it.
    """
    files = _read(_SignedBy, {}).signed_by
    _check_signed_by(files)
    return files


def _check_signed_by(files: tuple[Path, ...]) -> None:
    variable = f"{_PREFIX}SIGNED_BY"
    if variable in _empty_variables() and not files:
        raise StartError(
            f"{variable}: is empty; name a key, or unset it to accept unsigned bundles"
        )


def _empty_variables() -> set[str]:
    return {name.upper() for name, value in os.environ.items() if not value}


def _read(kind: type[_Read], overrides: Mapping[str, Any]) -> _Read:
    try:
        return kind(**overrides)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "missing":
            raise StartError("FORETELL_MODELS or --models: required, but missing") from None
        # Only the setting, without the place in a list; errors of several settings have no place.
        name = "".join(_named(str(part), overrides) for part in first["loc"][:1])
        context = first.get("ctx", {})
        message = str(context.get("error", first["msg"]))
        if expected := _EXPECTED.get(first["type"]):
            message = f"expected {expected.format(**context)}, got {first['input']!r}"
        raise StartError(name + message) from None


def _named(field: str, flags: Mapping[str, object]) -> str:
    return f"--{field.replace('_', '-')}: " if field in flags else f"{_PREFIX}{field.upper()}: "
