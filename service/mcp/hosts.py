"""Checks of the headers `Host` and `Origin`, by which a foreign page could use the tools.

A page may resolve its own name to the server's address. Browsers then send that name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress

from foretell.service.errors import ForbiddenError, ForeignHostError
from foretell.service.settings import Settings

_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# Addresses that mean all, and name no host.
_ALL = ("", "0.0.0.0", "::", "*")  # noqa: S104 - they are compared
_ORIGIN = re.compile(r"(https?)://(.*)")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+?)\.?(?::([0-9]{1,5}))?")
_PORTS = {"http": "80", "https": "443"}


class Hosts:
    """The names and origins by which clients may reach the server."""

    def __init__(self, settings: Settings) -> None:
        own = settings.host.strip("[]")
        named = [] if own in _ALL else [f"[{own}]" if ":" in own else own]
        self._names = [*dict.fromkeys([*_LOCAL, *named, *settings.mcp_hosts])]
        self._known = {name.lower() for name in self._names}
        self._origins = {origin.lower() for origin in settings.cors_origins}

    def check(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request, by their names in lower case.

        Raises:
            ForeignHostError: the host is unknown.
            ForbiddenError: the origin is unknown.
        """
        host = headers.get("host", "")
        found = _HOST.fullmatch(host.lower())
        if found is None or not (found[1] in self._known or _is_address(found[1])):
            raise ForeignHostError(
                f"expected one of {', '.join(self._names)}, got {host[:60]!r}; add the name by "
                "which clients reach the server to FORETELL_MCP_HOSTS",
                param="Host",
            )
        origin = headers.get("origin", "").lower()
        if not origin or not {"*", origin}.isdisjoint(self._origins):
            return
        if not _is_same(origin, found):
            raise ForbiddenError(
                "pages of this origin may not call the server; add it to FORETELL_CORS_ORIGINS",
                param="Origin",
            )


def _is_address(name: str) -> bool:
    """Whether a name is an address: no page can have its own resolved to one."""
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return True
    return False


def _is_same(origin: str, host: re.Match[str]) -> bool:
    """Whether an origin is the server's own, by its accepted host."""
    parts = _ORIGIN.fullmatch(origin)
    page = None if parts is None else _HOST.fullmatch(parts[2])
    if parts is None or page is None:
        return False
    usual = _PORTS[parts[1]]
    return (page[1], page[2] or usual) == (host[1], host[2] or usual)
