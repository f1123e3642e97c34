"""API keys for forecasts, and for loading and unloading models."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from multiprocessing import current_process
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


class Keys:
    """Checks the keys of requests; it only holds digests.

    Without `api` keys requests need no key. `admin` keys allow all requests; without them models
    cannot be loaded or unloaded. The files that `settings` names are read again.
    """

    def __init__(
        self,
        api: Iterable[str] = (),
        admin: Iterable[str] = (),
        settings: Settings | None = None,
    ) -> None:
        self.admin = [_digest(key) for key in admin]
        self.api = [_digest(key) for key in api]
        self._settings = settings
        self._problem = ""

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """The keys of the settings and of their files; StartError if a key or file is invalid."""
        return cls(
            _read("api_keys", settings.api_keys, settings.api_keys_file),
            _read("admin_keys", settings.admin_keys, settings.admin_keys_file),
            settings,
        )

    async def follow(self) -> None:
        """Read the files again every second, if there are any, until cancelled."""
        settings = self._settings
        while settings is not None and (settings.api_keys_file or settings.admin_keys_file):
            await asyncio.sleep(_POLL_SECONDS)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read the files again; an invalid one is logged once, and all keys stay."""
        if self._settings is None:
            return
        try:
            new, problem = Keys.read(self._settings), ""
        except StartError as error:
            new, problem = self, str(error)
        if problem and problem != self._problem:
            _logger.error("the keys stay as they are: %s", problem)
        self._problem = problem
        if (new.api, new.admin) != (self.api, self.admin):
            _logger.info("the keys have changed")
            self.api, self.admin = new.api, new.admin

    @property
    def required(self) -> bool:
        return bool(self.api)

    @property
    def controllable(self) -> bool:
        return bool(self.admin)

    def require(self, headers: Mapping[str, str]) -> str | None:
        """Check the key of a request (`Authorization: Bearer` or `X-API-Key`), if one is required.

        Returns eight digits that identify the key in logs until the server ends.
        """
        return _check(headers, self.api + self.admin).hex()[:8] if self.api else None

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the client has a valid key, or there are no keys."""
        try:
            return not (self.api or self.admin) or bool(_check(headers, self.api + self.admin))
        except UnauthorizedError:
            return False

    def require_admin(self, headers: Mapping[str, str]) -> None:
        if not self.admin:
            raise ForbiddenError(
                "control of the repository is off: the server has no admin keys "
                "(FORETELL_ADMIN_KEYS)"
            )
        if _check(headers, self.api + self.admin) not in self.admin:
            raise ForbiddenError("expected an admin key, got one for forecasts")


def _check(headers: Mapping[str, str], keys: list[bytes]) -> bytes:
    """The digest of the request's key, which must be one of `keys`."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    key = credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key")
    if key is None:
        raise UnauthorizedError("expected a key: Authorization: Bearer <key>, or X-API-Key: <key>")
    digest = hmac.digest(current_process().authkey, key.encode(), "sha256")
    # In constant time: all keys are compared, however early one is equal.
    if not sum(map(partial(hmac.compare_digest, digest), keys)):
        raise UnauthorizedError("the key is not one of this server's")
    return digest


def _digest(key: str) -> bytes:
    # Only the processes of one server share the secret: the log holds beginnings of digests, which
    # must not help to guess a key.
    return hmac.digest(current_process().authkey, key.encode(), "sha256")


def _read(name: str, keys: Iterable[SecretStr], file: Path | None) -> list[str]:
    """The keys of a setting and of its file, which has one on each line."""
    setting = f"FORETELL_{name.upper()}"
    values = [key.get_secret_value() for key in keys]
    if file is not None:
        setting += f"_FILE: {file}"
        try:
            lines = file.read_text().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"{setting}: cannot be read: {error}") from None
        values += [line.strip() for line in lines if line.strip()]
        if not values:
            raise StartError(f"{setting}: holds no key; write one on each line")
    for key in values:
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise StartError(
                f"{setting}: a key may only hold printable ASCII characters without spaces"
            )
    return values
