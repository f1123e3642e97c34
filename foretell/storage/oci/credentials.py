"""Credentials for registries, as `docker login` saves them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from foretell.storage.errors import StorageError

_HELPER_SECONDS = 30.0
# Docker saves the credentials of its own registry under this name.
_DOCKER = ("https://index.docker.io/v1/", "index.docker.io", "docker.io")


class Credentials(NamedTuple):
    """A user name and a password, or a token that the registry's token server renews."""

    username: str
    password: str
    renewal: str = ""

    @property
    def basic(self) -> str:
        """Value of the header `Authorization`."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def config_file() -> Path:
    """Docker's configuration, `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`."""
    folder = os.environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path("~/.docker").expanduser()) / "config.json"


def find(host: str) -> Credentials | None:
    """Find the credentials for a registry; None without a login.

    Args:
        host: Name of the registry, with its port if it has one.

    Raises:
        StorageError: the configuration is invalid, or its credential helper fails.
    """
    file = config_file()
    config = _read(file)
    names = _DOCKER if host == "docker.io" else (host, f"https://{host}", f"http://{host}")
    helpers = _mapping(config.get("credHelpers"))
    helper = helpers.get(host) or config.get("credsStore")
    saved = {_bare(name): entry for name, entry in _mapping(config.get("auths")).items()}
    for name in names:
        entry = _mapping(saved.get(_bare(name)))
        if found := _of_entry(entry, f"{file}: auths: {name}"):
            return found
    if helper:
        return _of_helper(str(helper), names[0], file)
    return None


def _read(file: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise StorageError(f"{file}: not JSON: {error}") from None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _bare(name: str) -> str:
    """A name in the configuration without scheme and path, which older versions of Docker save."""
    return name.partition("://")[2].partition("/")[0] if "://" in name else name.partition("/")[0]


def _of_entry(entry: Mapping[str, Any], place: str) -> Credentials | None:
    if renewal := entry.get("identitytoken"):
        return Credentials("", "", str(renewal))
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password", "")))
    if not (encoded := entry.get("auth")):
        return None
    try:
        username, colon, password = base64.b64decode(str(encoded)).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise StorageError(f"{place}: auth: expected user:password in base64")
    # Docker ends some passwords with a zero byte.
    return Credentials(username, password.rstrip("\0"))


def _of_helper(helper: str, server: str, file: Path) -> Credentials | None:
    """Credentials from `docker-credential-<helper>`; None if it has none for the server."""
    program = f"docker-credential-{helper}"
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", helper):
        raise StorageError(f"{file}: {helper!r} is not the name of a credential helper")
    try:
        done = subprocess.run(  # noqa: S603 - Docker's configuration names the program
            [program, "get"],
            input=server,
            capture_output=True,
            text=True,
            timeout=_HELPER_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise StorageError(
            f"{file}: names {program}, which is not installed; install it, or log in without it"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StorageError(f"{program}: {error}") from None
    if done.returncode != 0:
        if "not found" in done.stdout + done.stderr:
            return None
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise StorageError(f"{program}: {''.join(reason) or f'exit status {done.returncode}'}")
    try:
        found = json.loads(done.stdout)
        username, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        raise StorageError(f"{program}: expected Username and Secret in JSON") from None
    if username == "<token>":
        return Credentials("", "", secret)
    return Credentials(username, secret)
