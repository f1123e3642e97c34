"""Logins that `docker login` saves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foretell.storage.errors import StorageError
from foretell.storage.oci.credentials import Credentials, find
from tests.foretell.storage.oci.conftest import log_in

HOST = "registry.example:5000"


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `docker-credential-own`, which a test writes."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "docker-credential-own"


def write_helper(file: Path, lines: str) -> None:
    file.write_text(f"#!/bin/sh\nread server\n{lines}\n")
    file.chmod(0o755)


def test_registry_without_saved_login_has_no_credentials(login: Path) -> None:
    assert find(HOST) is None
    log_in(login, "another.example", "user:secret")
    assert find(HOST) is None


def test_password_is_read(login: Path) -> None:
    log_in(login, HOST, "user:se:cret")
    found = find(HOST)
    assert found == Credentials("user", "se:cret")
    assert found.basic == "Basic dXNlcjpzZTpjcmV0"


@pytest.mark.parametrize(
    ("host", "saved"),
    [
        (HOST, f"https://{HOST}/v1/"),
        (HOST, f"https://{HOST}"),
        ("docker.io", "https://index.docker.io/v1/"),
    ],
)
def test_names_of_older_versions_of_docker_are_found(host: str, saved: str, login: Path) -> None:
    log_in(login, saved, "user:secret")
    assert find(host) == Credentials("user", "secret")


def test_other_forms_of_entries_are_read(login: Path) -> None:
    for entry, expected in (
        ({"username": "user", "password": "secret"}, Credentials("user", "secret")),
        ({"identitytoken": "renew"}, Credentials("", "", "renew")),
        ({}, None),
    ):
        login.write_text(json.dumps({"auths": {HOST: entry}}))
        assert find(HOST) == expected


@pytest.mark.parametrize("key", ["credHelpers", "credsStore"])
def test_helper_gives_a_login(key: str, login: Path, helper: Path) -> None:
    value = {HOST: "own"} if key == "credHelpers" else "own"
    login.write_text(json.dumps({key: value}))
    write_helper(helper, """printf '{"Username": "of %s", "Secret": "secret"}' "$server" """)
    assert find(HOST) == Credentials(f"of {HOST}", "secret")
    write_helper(helper, """printf '{"Username": "<token>", "Secret": "renew"}'""")
    assert find(HOST) == Credentials("", "", "renew")
    write_helper(helper, "echo credentials not found in native keychain; exit 1")
    assert find(HOST) is None


def test_wrong_configurations_are_named(login: Path, helper: Path) -> None:
    for content, message in (
        ("{", r"config\.json: not JSON"),
        (json.dumps({"auths": {HOST: {"auth": "%"}}}), "auth: expected user:password in base64"),
        (json.dumps({"credsStore": "own"}), "names docker-credential-own, which is not installed"),
        (json.dumps({"credsStore": "../own"}), "is not the name of a credential helper"),
    ):
        login.write_text(content)
        with pytest.raises(StorageError, match=message):
            find(HOST)
    login.write_text(json.dumps({"credsStore": "own"}))
    write_helper(helper, "echo the keychain is locked >&2; exit 1")
    with pytest.raises(StorageError, match="docker-credential-own: the keychain is locked"):
        find(HOST)
    write_helper(helper, "echo none")
    with pytest.raises(StorageError, match="expected Username and Secret"):
        find(HOST)
