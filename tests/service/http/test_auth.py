from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from hashlib import sha256
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.engine.model import Model
from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.http.auth import Keys, Purpose
from foretell.service.settings import Settings
from tests.service.client import Client, connect


def keys_of(**lists: str) -> Keys:
    return Keys.read(Settings(models="m", **lists))


KEYS = keys_of(api_keys="one, two", admin_keys="boss")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("headers", "is_right"),
    [
        (bearer("one"), True),
        (bearer("two"), True),
        (bearer("boss"), True),
        ({"authorization": "bearer  one "}, True),
        ({"x-api-key": "two"}, True),
        ({"authorization": "Basic eDp5", "x-api-key": "one"}, True),
        ({}, False),
        ({"authorization": ""}, False),
        (bearer(""), False),
        (bearer("three"), False),
        (bearer("one,two"), False),
        (bearer("caf\xe9"), False),
        ({"authorization": "one"}, False),
        ({"authorization": "Basic one"}, False),
        ({"x-api-key": ""}, False),
        ({"authorization": "Bearer three", "x-api-key": "one"}, False),
    ],
)
def test_key_of_a_request(headers: dict[str, str], is_right: bool) -> None:
    assert KEYS.knows(headers) == is_right
    if is_right:
        assert KEYS.require(headers)
        return
    for purpose in Purpose:
        with pytest.raises(UnauthorizedError) as refused:
            KEYS.require(headers, purpose)
        assert "three" not in refused.value.message


_OFF, _NOT_ADMIN, _NO_KEY = "FORETELL_ADMIN_KEYS", "expected an admin key", "expected a key"


@pytest.mark.parametrize(
    ("keys", "headers", "asks", "controls"),
    [
        (Keys(), {}, "", _OFF),
        (Keys(), bearer("boss"), "", _OFF),
        (KEYS, bearer("one"), "", _NOT_ADMIN),
        (KEYS, bearer("boss"), "", ""),
        # Without API keys forecasts need no key.
        (keys_of(admin_keys="boss"), {}, "", _NO_KEY),
        (keys_of(admin_keys="boss"), bearer("boss"), "", ""),
        (keys_of(api_keys="one"), {}, _NO_KEY, _OFF),
    ],
)
def test_keys_allow_requests_and_control(
    keys: Keys, headers: dict[str, str], asks: str, controls: str
) -> None:
    for purpose, refused in ((Purpose.FORECAST, asks), (Purpose.ADMIN, controls)):
        error = ForbiddenError if refused in (_OFF, _NOT_ADMIN) else UnauthorizedError
        with pytest.raises(error, match=refused) if refused else nullcontext():
            keys.require(headers, purpose)
    assert keys.knows(headers) == (bool(headers) or not (keys.required or keys.controllable))


def test_keys_come_from_settings_and_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("three\n\n four \n")
    settings = Settings(models="m", api_keys="one, two", api_keys_file=file, admin_keys="boss")
    keys = Keys.read(settings)
    for key in ("one", "two", "three", "four", "boss"):
        keys.require(bearer(key))
    keys.require(bearer("boss"), Purpose.ADMIN)


def rotating(tmp_path: Path, **given: str) -> tuple[Keys, Path, Path]:
    """Keys from files: `one` and `two` for the API, `boss` for administrators."""
    api, admin = tmp_path / "api", tmp_path / "admin"
    api.write_text("one\ntwo\n")
    admin.write_text("boss\n")
    settings = Settings.read(models="m", api_keys_file=api, admin_keys_file=admin, **given)
    return Keys.read(settings), api, admin


def passes(keys: Keys, key: str) -> bool:
    try:
        keys.require(bearer(key))
    except UnauthorizedError:
        return False
    return True


def test_key_files_are_read_again_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys, api, admin = rotating(tmp_path, api_keys="fixed")
    api.write_text("two\nthree\n")
    keys.refresh()
    assert [passes(keys, key) for key in ("fixed", "one", "two", "three")] == [
        *(True, False, True, True)
    ]
    # As Kubernetes does: another file of that name. This one is as large, and as old.
    (tmp_path / "new").write_text("chef\n")
    times = admin.stat()
    os.utime(tmp_path / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "new").rename(admin)
    keys.refresh()
    keys.require(bearer("chef"), Purpose.ADMIN)
    with pytest.raises(UnauthorizedError):
        keys.require(bearer("boss"), Purpose.ADMIN)
    assert "three" not in caplog.text


@pytest.mark.parametrize("content", [None, "", "more than two\n"])
def test_broken_key_file_keeps_the_old_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    keys, api, admin = rotating(tmp_path)
    admin.write_text("chef\n")
    if content is None:
        api.unlink()
    else:
        api.write_text(content)
    for _ in range(3):
        keys.refresh()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"FORETELL_API_KEYS_FILE: {api}" in caplog.text
    keys.require(bearer("boss"), Purpose.ADMIN)
    assert passes(keys, "one")
    api.write_text("three\n")
    keys.refresh()
    assert (passes(keys, "one"), passes(keys, "three"), passes(keys, "chef")) == (False, True, True)


def test_changed_keys_apply_while_the_server_runs(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.http.auth._POLL_SECONDS", 0.001)
    file = tmp_path / "keys"
    file.write_text("one\n")
    with Client(models, api_keys_file=file) as client:

        async def scene() -> None:
            async with (
                client.app.router.lifespan_context(client.app),
                connect(client.app) as http,
            ):
                assert (await http.get("/models", headers=bearer("two"))).status_code == 401
                file.write_text("two\n")
                while not (await http.get("/models", headers=bearer("two"))).is_success:
                    await asyncio.sleep(0.001)

        asyncio.run(asyncio.wait_for(scene(), 30))
    # Without files `follow` returns at once.
    asyncio.run(asyncio.wait_for(Keys.read(Settings(models="m", api_keys="one")).follow(), 30))


def test_logged_names_of_keys_differ_and_reveal_nothing() -> None:
    def named() -> set[str | None]:
        keys = keys_of(api_keys="one,two")
        return {keys.require(bearer(key)).key for key in ("one", "two")}

    found, process = named(), current_process()
    assert len(found) == 2
    assert found == named()
    assert not found & {sha256(key).hexdigest()[:8] for key in (b"one", b"two")}
    secret = process.authkey
    # Every server has its own secret.
    process.authkey = b"another"
    try:
        assert not found & named()
    finally:
        process.authkey = secret


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        (b"\n \n", "holds no key"),
        (b"fine\nmore than two\n", "line 2: expected a key, or a key, a space and a namespace"),
        (b"a\ttab\n", "line 1: a key may only hold printable ASCII"),
        ("café\n".encode(), "printable ASCII"),
        (b"\xff\n", "cannot be read"),
    ],
)
def test_file_without_a_list_of_keys_is_refused(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    settings = Settings(models="m", admin_keys_file=file)
    with pytest.raises(StartError, match=f"^FORETELL_ADMIN_KEYS_FILE: {file}.*{problem}"):
        Keys.read(settings)
    with pytest.raises(StartError, match=r"^FORETELL_API_KEYS: key 2: .*printable ASCII"):
        keys_of(api_keys="one,caf\xe9")


PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}
KEY = {"Authorization": "Bearer one"}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Any:
    with Client(models, api_keys="one", cors_origins=PAGE) as client:
        yield client


SENT = (
    *("authorization", "x-api-key", "content-type", "content-encoding", "x-request-id"),
    *("x-timeout-ms", "inference-header-content-length", "traceparent", "tracestate"),
)


def preflight(client: Client, origin: str, *names: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ",".join(names or SENT),
        "Access-Control-Request-Private-Network": "true",
    }
    return client.request("OPTIONS", "/v1/timeseries/models", headers=headers)


def forecast(client: Client, origin: str) -> httpx.Response:
    return client.request("POST", "/forecast", json=BODY, headers={"Origin": origin, **KEY})


def listed(answer: httpx.Response, name: str) -> set[str]:
    listing = answer.headers[f"access-control-{name}"]
    return {one.strip().lower() for one in listing.split(",")}


def test_preflight_needs_no_key_and_allows_all_headers_in_use(guarded: Client) -> None:
    answer = preflight(guarded, PAGE)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert listed(answer, "allow-methods") >= {"get", "post"}
    assert listed(answer, "allow-headers") >= {*SENT}
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert "Origin" in answer.headers["vary"]
    assert preflight(guarded, PAGE, "x-other").status_code == 400


def test_page_may_read_answers_and_errors(guarded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = forecast(guarded, PAGE)
    assert answer.status_code == 200
    assert "Origin" in answer.headers["vary"]
    read = listed(answer, "expose-headers")
    assert {"retry-after", "x-request-id", "inference-header-content-length"} <= read
    monkeypatch.setattr(Model, "submit", lambda *_, **__: 1 / 0)
    for path, headers, status in (
        ("/forecast", {}, 401),
        ("/nope", KEY, 404),
        ("/forecast", KEY, 500),
    ):
        answer = guarded.request("POST", path, json=BODY, headers={"Origin": PAGE, **headers})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)


def test_pages_of_other_origins(guarded: Client, client: Client, models: Path) -> None:
    refused = preflight(guarded, OTHER)
    assert refused.status_code == 400
    for answer in (refused, forecast(guarded, OTHER)):
        assert "access-control-allow-origin" not in answer.headers
    # Browsers refuse `*` with cookies, and the origin itself would let every page use them.
    with Client(models, cors_origins="*") as anybody:
        for answer in (forecast(anybody, OTHER), preflight(anybody, OTHER)):
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answer.headers
    # CORS is off by default.
    assert preflight(client, PAGE).status_code == 405
    assert not [name for name in forecast(client, PAGE).headers if "access-control" in name]
