"""Answers to a registry's challenges: a password, or a token of its token server."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple
from urllib.request import parse_http_list, parse_keqv_list

import httpx

from foretell.storage.errors import StorageError
from foretell.storage.oci import credentials
from foretell.storage.oci.credentials import Credentials


class _Challenge(NamedTuple):
    scheme: str
    fields: dict[str, str]


class RegistryAuth(httpx.Auth):
    """Logs in when a registry demands it; anonymously without saved credentials.

    The configuration is read at every challenge, because tokens in it are replaced.

    Args:
        host: Name of the registry, with its port if it has one.
        endpoint: Address of the registry's API. No other server gets the credentials, except the
            token server that the registry names.
    """

    def __init__(self, host: str, endpoint: str) -> None:
        self._host = host
        self._endpoint = httpx.URL(endpoint)
        self._header = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request, and once more after a challenge."""
        if not _same_server(request.url, self._endpoint):
            yield request
            return
        if self._header:
            request.headers["Authorization"] = self._header
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return
        header = yield from self._answer(_challenges(response))
        if header:
            self._header = request.headers["Authorization"] = header
            yield request

    def _answer(
        self, challenges: list[_Challenge]
    ) -> Generator[httpx.Request, httpx.Response, str]:
        """Value of the header `Authorization` for a challenge; empty without credentials."""
        saved = credentials.find(self._host)
        for scheme, fields in challenges:
            if scheme == "bearer" and "realm" in fields:
                response = yield _token_request(fields, saved)
                return self._token(response, fields["realm"], saved)
            if scheme == "basic" and saved is not None:
                return saved.basic
        return ""

    def _token(self, response: httpx.Response, realm: str, saved: Credentials | None) -> str:
        response.read()
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise StorageError(f"{realm}: {refused(self._host, saved)}")
        try:
            found = response.raise_for_status().json()
            return f"Bearer {found.get('token') or found['access_token']}"
        except (httpx.HTTPStatusError, ValueError, KeyError, AttributeError):
            raise StorageError(
                f"{realm}: the token server gave no token ({response.status_code})"
            ) from None


def refused(host: str, saved: Credentials | None) -> str:
    """Why a registry refuses a login, and what to do."""
    if saved is None:
        return f"unauthorized; run `docker login {host}`"
    return f"the registry refuses the saved login; run `docker login {host}` again"


def _token_request(fields: dict[str, str], saved: Credentials | None) -> httpx.Request:
    known = ("service", "scope")
    wanted: dict[str, str] = {name: fields[name] for name in known if name in fields}
    if saved is not None and saved.renewal:
        form = {"grant_type": "refresh_token", "refresh_token": saved.renewal}
        content = {**form, "client_id": "foretell", **wanted}
        return httpx.Request("POST", fields["realm"], data=content)
    headers = {} if saved is None else {"Authorization": saved.basic}
    url = httpx.URL(fields["realm"]).copy_merge_params(wanted)
    return httpx.Request("GET", url, headers=headers)


def _challenges(response: httpx.Response) -> list[_Challenge]:
    found = []
    for header in response.headers.get_list("www-authenticate"):
        scheme, _, rest = header.partition(" ")
        try:
            fields = parse_keqv_list(parse_http_list(rest))
        except ValueError:
            continue
        found.append(_Challenge(scheme.lower(), fields))
    return found


def _same_server(one: httpx.URL, other: httpx.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
