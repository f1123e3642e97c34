"""Answers to a registry's challenges: a password, or a token of its token server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple
from urllib.request import parse_http_list, parse_keqv_list

import httpx

from foretell.storage.errors import StorageError
from foretell.storage.oci import bodies, credentials
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
        http: Client for token servers. It must not follow redirects: these would carry the login to
            another server.
    """

    def __init__(self, host: str, endpoint: str, http: httpx.Client) -> None:
        self._host = host
        self._endpoint = httpx.URL(endpoint)
        self._http = http
        self._header = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request, and once more after a challenge."""
        if not same_server(request.url, self._endpoint):
            yield request
            return
        if self._header:
            request.headers["Authorization"] = self._header
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return
        if not same_server(response.url, self._endpoint):
            # The registry has led to another server, which would name its own token server.
            return
        header = self._answer(_challenges(response))
        if header:
            self._header = request.headers["Authorization"] = header
            yield request

    def _answer(self, challenges: list[_Challenge]) -> str:
        """Value of the header `Authorization` for a challenge; empty without credentials."""
        saved = credentials.find(self._host)
        for scheme, fields in challenges:
            if scheme == "bearer" and "realm" in fields:
                return self._token(fields, saved)
            if scheme == "basic" and saved is not None:
                return saved.basic
        return ""

    def _token(self, fields: dict[str, str], saved: Credentials | None) -> str:
        realm = fields["realm"]
        response = self._http.send(self._token_request(fields, saved), stream=True)
        with closing(response):
            return self._read_token(response, realm, saved)

    def _token_request(self, fields: dict[str, str], saved: Credentials | None) -> httpx.Request:
        known = ("service", "scope")
        wanted = {name: fields[name] for name in known if name in fields}
        if saved is not None and saved.renewal:
            form = {"grant_type": "refresh_token", "refresh_token": saved.renewal}
            content = {**form, "client_id": "foretell", **wanted}
            return self._http.build_request("POST", fields["realm"], data=content)
        headers = {} if saved is None else {"Authorization": saved.basic}
        url = httpx.URL(fields["realm"]).copy_merge_params(wanted)
        return self._http.build_request("GET", url, headers=headers)

    def _read_token(self, response: httpx.Response, realm: str, saved: Credentials | None) -> str:
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise StorageError(f"{realm}: {refused(self._host, saved)}")
        found = bodies.fields(response, realm) if response.is_success else {}
        token = found.get("token") or found.get("access_token")
        if not token:
            raise StorageError(f"{realm}: the token server gave no token ({response.status_code})")
        return f"Bearer {token}"


def refused(host: str, saved: Credentials | None) -> str:
    """Why a registry refuses a login, and what to do."""
    if saved is None:
        return f"unauthorized; run `docker login {host}`"
    return f"the registry refuses the saved login; run `docker login {host}` again"


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


def same_server(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses have the same scheme, host and port."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
