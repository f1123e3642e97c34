"""API keys: which requests a key allows, and the namespace of its data."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing import current_process
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Purpose(StrEnum):
    """Kinds of requests; the setting `FORETELL_<value>_KEYS` lists the keys for one."""

    FORECAST = "api"
    ACTUALS = "actuals"
    LEDGER = "ledger"
    ADMIN = "admin"

    @property
    def setting(self) -> str:
        return f"FORETELL_{self.upper()}_KEYS"


_ACTIONS = {
    Purpose.FORECAST: "forecast or read models",
    Purpose.ACTUALS: "write actual values or delete series",
    Purpose.LEDGER: "read scores or stored forecasts",
    Purpose.ADMIN: "load or unload models",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a request, by its key.

    Attributes:
        key: Eight digits that identify the key in logs until the server ends; None without one of
            the server's keys.
        namespace: Namespace of the key; the empty one is shared.
        purposes: Requests whose lists have the key.
    """

    key: str | None = None
    namespace: str = ""
    purposes: frozenset[Purpose] = frozenset()

    @property
    def admin(self) -> bool:
        return Purpose.ADMIN in self.purposes


_WITHOUT_KEY = Caller()


class Keys:
    """Checks the keys of requests; it only holds digests.

    Without keys for `FORECAST`, requests need a key only for purposes that have a list; with them,
    purposes without a list need an admin key. Admin keys allow all requests; without them models
    cannot be loaded or unloaded. The files that `settings` names are read again.

    Args:
        lists: Keys for each purpose, with their namespaces; a key has the same one in all lists.
    """

    def __init__(
        self,
        lists: Mapping[Purpose, Mapping[str, str]] | None = None,
        settings: Settings | None = None,
    ) -> None:
        lists = lists or {}
        # Reading files again changes keys, but no list becomes empty.
        self._listed = frozenset(purpose for purpose, keys in lists.items() if keys)
        namespaces = {key: name for keys in lists.values() for key, name in keys.items()}
        self._callers: dict[bytes, Caller] = {}
        for key, namespace in namespaces.items():
            digest = _digest(key)
            purposes = frozenset(purpose for purpose, keys in lists.items() if key in keys)
            self._callers[digest] = Caller(digest.hex()[:8], namespace, purposes)
        self._settings = settings
        self._problem = ""

    @classmethod
    def read(cls, settings: Settings) -> Self:
        """The keys of the settings and of their files.

        Raises:
            StartError: a file cannot be read or holds no key, a key or namespace is invalid, or a
                key has two namespaces; the message names the setting.
        """
        lists: dict[Purpose, dict[str, str]] = {purpose: {} for purpose in Purpose}
        places: dict[str, tuple[str, str]] = {}
        for purpose, keys in lists.items():
            for place, text in _entries(purpose, settings):
                key, namespace = _parse(text, place)
                first, same = places.setdefault(key, (place, namespace))
                if namespace != same:
                    raise StartError(
                        f"{place}: the key has another namespace in {first}; give it the same one"
                    )
                keys[key] = namespace
        return cls(lists, settings)

    async def follow(self) -> None:
        """Read the files again every second, if there are any, until cancelled."""
        settings = self._settings
        while settings is not None and any(_file(purpose, settings) for purpose in Purpose):
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
        if new._callers != self._callers:
            _logger.info("the keys have changed")
            # One assignment: another thread may be checking a key.
            self._callers = new._callers

    @property
    def required(self) -> bool:
        """Whether forecasts need a key."""
        return Purpose.FORECAST in self._listed

    @property
    def controllable(self) -> bool:
        """Whether clients may load and unload models."""
        return Purpose.ADMIN in self._listed

    def require(self, headers: Mapping[str, str], purpose: Purpose = Purpose.FORECAST) -> Caller:
        """Check the key of a request (`Authorization: Bearer` or `X-API-Key`), if it needs one.

        Returns:
            The client; one with a known key has its namespace even where requests need no key.

        Raises:
            UnauthorizedError: the request needs a key, and has none or an unknown one.
            ForbiddenError: the key is not for this purpose, or there are no admin keys.
        """
        if purpose is Purpose.ADMIN and not self.controllable:
            raise ForbiddenError(
                "control of the repository is off: the server has no admin keys "
                "(FORETELL_ADMIN_KEYS)"
            )
        needed = self.required or purpose in self._listed
        if not self._callers:
            return _WITHOUT_KEY
        try:
            caller = self._caller(headers)
        except UnauthorizedError:
            if needed:
                raise
            return _WITHOUT_KEY
        if needed and not (caller.admin or purpose in caller.purposes):
            expected = "an admin key"
            if purpose is not Purpose.ADMIN:
                expected += f" or one of {purpose.setting}"
            raise ForbiddenError(f"the key may not {_ACTIONS[purpose]}: expected {expected}")
        return caller

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the client has a valid key, or there are no keys."""
        try:
            return not self._callers or bool(self._caller(headers))
        except UnauthorizedError:
            return False

    def _caller(self, headers: Mapping[str, str]) -> Caller:
        """The client with the request's key, which must be one of the server's."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        key = credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key")
        if key is None:
            raise UnauthorizedError(
                "expected a key: Authorization: Bearer <key>, or X-API-Key: <key>"
            )
        digest, callers = _digest(key), self._callers
        # In constant time: all keys are compared, however early one is equal.
        if not sum(map(partial(hmac.compare_digest, digest), callers)):
            raise UnauthorizedError("the key is not one of this server's")
        return callers[digest]


def _digest(key: str) -> bytes:
    # Only the processes of one server share the secret: the log holds beginnings of digests, which
    # must not help to guess a key.
    return hmac.digest(current_process().authkey, key.encode(), "sha256")


def _file(purpose: Purpose, settings: Settings) -> Path | None:
    file: Path | None = getattr(settings, f"{purpose}_keys_file")
    return file


def _entries(purpose: Purpose, settings: Settings) -> Iterator[tuple[str, str]]:
    """The keys of a setting and of its file, which has one on each line, with their places."""
    given: tuple[SecretStr, ...] = getattr(settings, f"{purpose}_keys")
    for number, entry in enumerate(given, 1):
        yield f"{purpose.setting}: key {number}", entry.get_secret_value()
    if (file := _file(purpose, settings)) is None:
        return
    place = f"{purpose.setting}_FILE: {file}"
    try:
        lines = file.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{place}: cannot be read: {error}") from None
    if not (given or any(map(str.strip, lines))):
        raise StartError(f"{place}: holds no key; write one on each line")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{place}: line {number}", line.strip()


def _parse(text: str, place: str) -> tuple[str, str]:
    """A key and its namespace; messages repeat neither, since either may be a secret."""
    key, space, namespace = text.partition(" ")
    if not (key.isascii() and key.isprintable()):
        raise StartError(f"{place}: a key may only hold printable ASCII characters without spaces")
    namespace = namespace.strip(" ")
    if space and not _NAMESPACE.fullmatch(namespace):
        raise StartError(
            f"{place}: expected a key, or a key, a space and a namespace of 1 to 64 letters, "
            "digits, '.', '_' or '-'"
        )
    return key, namespace
