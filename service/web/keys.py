"""API keys: who may ask for forecasts, and who may load and unload models."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.settings import Settings

_SCHEME = "bearer"


class Keys:
    """Checks the keys of requests; holds nothing but their digests.

    Args:
        api: Keys that may ask for forecasts; without any, everybody may.
        admin: Keys that may do everything; without any, nobody may control the repository.
    """

    def __init__(self, api: Iterable[str] = (), admin: Iterable[str] = ()) -> None:
        self._admin = [_digest(key) for key in admin]
        self._api = [_digest(key) for key in api]

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """The keys of the settings and of the files they name.

        Raises:
            StartError: a file cannot be read or holds no key, or a key could never be sent.
        """
        return cls(
            _read("api_keys", settings.api_keys, settings.api_keys_file),
            _read("admin_keys", settings.admin_keys, settings.admin_keys_file),
        )

    @property
    def required(self) -> bool:
        """Whether requests need a key at all."""
        return bool(self._api)

    @property
    def controllable(self) -> bool:
        """Whether there is a key to control the repository with."""
        return bool(self._admin)

    def require(self, headers: Mapping[str, str]) -> None:
        """Let only those pass who have a key, if keys are required.

        Args:
            headers: The request's: `Authorization: Bearer <key>` or `X-API-Key: <key>`.

        Raises:
            UnauthorizedError: there is no key, or not a right one.
        """
        if self.required:
            _check(headers, self._api + self._admin)

    def require_admin(self, headers: Mapping[str, str]) -> None:
        """Let only those pass who may control the repository.

        Raises:
            ForbiddenError: no admin keys are configured, or the key is one for forecasts.
            UnauthorizedError: there is no key, or not a right one.
        """
        if not self._admin:
            raise ForbiddenError(
                "control of the repository is off: the server has no admin keys "
                "(FORETELL_ADMIN_KEYS)"
            )
        given = _check(headers, self._api + self._admin)
        if not _is_any(given, self._admin):
            raise ForbiddenError("expected an admin key, got one for forecasts")


def _check(headers: Mapping[str, str], keys: list[bytes]) -> bytes:
    """The digest of the request's key, which is one of `keys`."""
    key = _key_of(headers)
    if key is None:
        raise UnauthorizedError("expected a key: Authorization: Bearer <key>, or X-API-Key: <key>")
    given = _digest(key)
    if not _is_any(given, keys):
        raise UnauthorizedError("the key is not one of this server's")
    return given


def _key_of(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == _SCHEME else headers.get("x-api-key")


def _is_any(given: bytes, keys: list[bytes]) -> bool:
    # Compares with every key, however early one fits: the time tells nothing.
    return sum(hmac.compare_digest(given, key) for key in keys) > 0


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()


def _read(name: str, keys: Iterable[SecretStr], file: Path | None) -> list[str]:
    found = [key.get_secret_value() for key in keys]
    place = f"FORETELL_{name.upper()}"
    if file is not None:
        place += f"_FILE: {file}"
        try:
            lines = file.read_text().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"{place}: cannot be read: {error}") from None
        found += [line.strip() for line in lines if line.strip()]
        if not found:
            raise StartError(f"{place}: holds no key; write one on each line")
    for key in found:
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise StartError(f"{place}: a key may hold printable ASCII characters alone, no spaces")
    return found
