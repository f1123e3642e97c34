"""API keys: who may ask for forecasts, and who may load and unload models."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Iterable, Mapping
from multiprocessing import current_process
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.settings import Settings

_Stamp = tuple[int, int, int]

_logger = logging.getLogger(__name__)

_SCHEME = "bearer"
_LOOK_SECONDS = 1.0


class Keys:
    """Checks the keys of requests; holds nothing but their digests.

    Args:
        api: Keys that may ask for forecasts; without any, everybody may.
        admin: Keys that may do everything; without any, nobody may control the repository.
        settings: What they are from, if it is looked at again.

    Attributes:
        api: Digests of the keys.
        admin: Likewise.
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
        self._files = (settings.api_keys_file, settings.admin_keys_file) if settings else ()
        # What came since they were read is noticed too.
        self._stamps: list[_Stamp | None] = []

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """The keys of the settings and of the files they name.

        Raises:
            StartError: a file cannot be read or holds no key, or a key could never be sent.
        """
        return cls(
            _read("api_keys", settings.api_keys, settings.api_keys_file),
            _read("admin_keys", settings.admin_keys, settings.admin_keys_file),
            settings,
        )

    async def follow(self) -> None:
        """Read the files again when they change, for ever."""
        while any(self._files):
            await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read the files again if they have changed.

        If one cannot be used, that is logged once, and all keys stay as they are.
        """
        stamps = [_stamp(file) for file in self._files]
        if stamps == self._stamps or self._settings is None:
            return
        self._stamps = stamps
        try:
            new = Keys.read(self._settings)
        except StartError as error:
            _logger.error("the keys stay as they are: %s", error)
            return
        if (new.api, new.admin) != (self.api, self.admin):
            _logger.info("the keys have changed")
            self.api, self.admin = new.api, new.admin

    @property
    def required(self) -> bool:
        """Whether requests need a key at all."""
        return bool(self.api)

    @property
    def controllable(self) -> bool:
        """Whether there is a key to control the repository with."""
        return bool(self.admin)

    def require(self, headers: Mapping[str, str]) -> str | None:
        """Let only those pass who have a key, if keys are required.

        Args:
            headers: The request's: `Authorization: Bearer <key>` or `X-API-Key: <key>`.

        Returns:
            Eight digits that tell the key from others in logs until the server ends; None if no key
            is required.

        Raises:
            UnauthorizedError: there is no key, or not a right one.
        """
        return _check(headers, self.api + self.admin).hex()[:8] if self.api else None

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a caller may read what errors say of the server: anyone, if it has no keys."""
        try:
            return not (self.api or self.admin) or bool(_check(headers, self.api + self.admin))
        except UnauthorizedError:
            return False

    def require_admin(self, headers: Mapping[str, str]) -> None:
        """Let only those pass who may control the repository.

        Raises:
            ForbiddenError: no admin keys are configured, or the key is one for forecasts.
            UnauthorizedError: there is no key, or not a right one.
        """
        if not self.admin:
            raise ForbiddenError(
                "control of the repository is off: the server has no admin keys "
                "(FORETELL_ADMIN_KEYS)"
            )
        given = _check(headers, self.api + self.admin)
        if not _is_any(given, self.admin):
            raise ForbiddenError("expected an admin key, got one for forecasts")


def _check(headers: Mapping[str, str], keys: list[bytes]) -> bytes:
    """The digest of the request's key, which is one of `keys`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    found = key.strip() if scheme.lower() == _SCHEME else headers.get("x-api-key")
    if found is None:
        raise UnauthorizedError("expected a key: Authorization: Bearer <key>, or X-API-Key: <key>")
    given = _digest(found)
    if not _is_any(given, keys):
        raise UnauthorizedError("the key is not one of this server's")
    return given


def _is_any(given: bytes, keys: list[bytes]) -> bool:
    # Compares with every key, however early one fits: the time tells nothing.
    return sum([hmac.compare_digest(given, key) for key in keys]) > 0


def _digest(key: str) -> bytes:
    # A secret that all processes of a server share, and no other server has: digests, of which the
    # log has the beginning, help nobody to guess a key.
    return hmac.digest(current_process().authkey, key.encode(), "sha256")


def _stamp(file: Path | None) -> _Stamp | None:
    """What another file of that name would have otherwise."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_size, found.st_ino)


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
