from __future__ import annotations

import asyncio
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.engine.model import Model
from foretell.service.errors import ForbiddenError, ServiceError, StartError, UnauthorizedError
from foretell.service.http.auth import Keys
from foretell.service.settings import Settings
from tests.service.client import Client, connect
from tests.support.process import Server
from tests.support.waiting import until

KEYS = Keys(api=["one", "two"], admin=["boss"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers",
    [
        bearer("one"),
        bearer("two"),
        bearer("boss"),
        {"authorization": "bearer  one "},
        {"x-api-key": "two"},
        {"authorization": "Basic eDp5", "x-api-key": "one"},
    ],
)
def test_a_right_key_passes(headers: dict[str, str]) -> None:
    KEYS.require(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        bearer(""),
        bearer("three"),
        bearer("one,two"),
        bearer("caf\xe9"),
        {"authorization": "one"},
        {"authorization": "Basic one"},
        {"x-api-key": ""},
        {"authorization": "Bearer three", "x-api-key": "one"},
    ],
)
def test_no_other_does(headers: dict[str, str]) -> None:
    for check in (KEYS.require, KEYS.require_admin):
        with pytest.raises(UnauthorizedError):
            check(headers)


def test_without_keys_everybody_may_ask_and_nobody_may_control() -> None:
    keys = Keys()
    assert not keys.required
    keys.require({})
    with pytest.raises(ForbiddenError, match="FORETELL_ADMIN_KEYS"):
        keys.require_admin(bearer("boss"))


def test_control_needs_an_admin_key() -> None:
    KEYS.require_admin(bearer("boss"))
    with pytest.raises(ForbiddenError, match="expected an admin key"):
        KEYS.require_admin(bearer("one"))


def test_admin_keys_alone_leave_forecasts_open() -> None:
    keys = Keys(admin=["boss"])
    keys.require({})
    keys.require_admin(bearer("boss"))
    with pytest.raises(UnauthorizedError):
        keys.require_admin({})


def test_errors_are_explained_to_clients_with_a_key() -> None:
    assert Keys().knows({})
    for keys in (KEYS, Keys(admin=["boss"])):
        assert [keys.knows(headers) for headers in ({}, bearer("three"), bearer("boss"))] == [
            *(False, False, True)
        ]


def test_an_error_does_not_repeat_the_key() -> None:
    with pytest.raises(ServiceError) as caught:
        KEYS.require(bearer("secret"))
    assert "secret" not in caught.value.message


def test_keys_come_from_settings_and_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("three\n\n four \n")
    settings = Settings(models="m", api_keys="one, two", api_keys_file=file, admin_keys="boss")
    keys = Keys.read(settings)
    for key in ("one", "two", "three", "four", "boss"):
        keys.require(bearer(key))
    keys.require_admin(bearer("boss"))


def rotating(tmp_path: Path, **given: str) -> tuple[Keys, Path, Path]:
    """Keys of two files: one, two; boss."""
    api, admin = tmp_path / "api", tmp_path / "admin"
    api.write_text("one\ntwo\n")
    admin.write_text("boss\n")
    settings = Settings.read(models="m", api_keys_file=api, admin_keys_file=admin, **given)
    keys = Keys.read(settings)
    keys.refresh()
    return keys, api, admin


def passes(keys: Keys, key: str) -> bool:
    try:
        keys.require(bearer(key))
    except UnauthorizedError:
        return False
    return True


def test_files_are_read_again_when_they_change(
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
    keys.require_admin(bearer("chef"))
    with pytest.raises(UnauthorizedError):
        keys.require_admin(bearer("boss"))
    assert "three" not in caplog.text


@pytest.mark.parametrize("content", [None, "", "two words\n"])
def test_a_file_that_breaks_leaves_the_keys_as_they_are(
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
    keys.require_admin(bearer("boss"))
    assert passes(keys, "one")
    api.write_text("three\n")
    keys.refresh()
    assert (passes(keys, "one"), passes(keys, "three"), passes(keys, "chef")) == (False, True, True)


def test_what_is_written_while_the_server_starts_is_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n")
    keys = Keys.read(Settings(models="m", api_keys_file=file))
    file.write_text("two\n")
    keys.refresh()
    assert passes(keys, "two")


def test_keys_are_followed_while_the_server_runs(
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


def test_keys_without_files_need_no_looking_after() -> None:
    asyncio.run(asyncio.wait_for(Keys.read(Settings(models="m", api_keys="one")).follow(), 30))


def logged(models: Path, log: Path) -> set[str]:
    """What two HTTP workers log about the keys `one` and `two`: both the same."""
    with Server(models, log, workers=2, api_keys="one,two") as server:
        keys: dict[int, set[str]] = {}

        def ask() -> bool:
            for key in ("one", "two"):
                httpx.get(f"{server.url}/models", headers=bearer(key))
            for line in map(json.loads, server.log.splitlines()):
                if line["message"] == "request":
                    keys.setdefault(line["process"], set()).add(line["key"])
            return list(map(len, keys.values())) == [2, 2]

        until(ask)
        one, other = keys.values()
        assert one == other
        return one


def test_the_log_tells_keys_apart_and_helps_nobody_to_guess_them(
    models: Path, tmp_path: Path
) -> None:
    found = logged(models, tmp_path / "log")
    assert not found & logged(models, tmp_path / "later")
    assert not found & {sha256(key).hexdigest()[:8] for key in (b"one", b"two")}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        (b"\n \n", "holds no key"),
        (b"two words\n", "printable ASCII"),
        ("café\n".encode(), "printable ASCII"),
        (b"\xff\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_list_of_keys(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    settings = Settings(models="m", admin_keys_file=file)
    with pytest.raises(StartError, match=f"^FORETELL_ADMIN_KEYS_FILE: {file}.*{problem}"):
        Keys.read(settings)


def test_a_key_that_could_never_be_sent() -> None:
    with pytest.raises(StartError, match=r"^FORETELL_API_KEYS: .*printable ASCII"):
        Keys.read(Settings(models="m", api_keys="caf\xe9"))


PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}
KEY = {"Authorization": "Bearer one"}


def preflight(client: Client, origin: str, method: str = "POST", *names: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": ",".join(names or ("content-type", "authorization")),
    }
    return client.request("OPTIONS", "/v1/timeseries/models", headers=headers)


def listed(answer: httpx.Response, name: str) -> set[str]:
    return {one.strip().lower() for one in answer.headers[name].split(",")}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Any:
    with Client(models, api_keys="one", cors_origins=PAGE) as client:
        yield client


def test_a_preflight_needs_no_key(guarded: Client) -> None:
    answer = preflight(guarded, PAGE)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert {"GET", "POST"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert "Origin" in answer.headers["vary"]


def test_every_header_that_is_read_may_be_sent(guarded: Client) -> None:
    names = (
        *("authorization", "x-api-key", "content-type", "content-encoding", "x-request-id"),
        *("x-timeout-ms", "inference-header-content-length", "traceparent", "tracestate"),
    )
    answer = preflight(guarded, PAGE, "POST", *names)
    assert answer.status_code == 200
    assert set(names) <= listed(answer, "access-control-allow-headers")
    assert preflight(guarded, PAGE, "POST", "x-other").status_code == 400


def test_a_page_may_ask_a_server_of_a_private_network(guarded: Client) -> None:
    headers = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    answer = guarded.request("OPTIONS", "/models", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-private-network"] == "true"
    refused = guarded.request("OPTIONS", "/models", headers=headers | {"Origin": OTHER})
    assert refused.status_code == 400


def test_a_request_with_a_key(guarded: Client) -> None:
    answer = guarded.request("POST", "/forecast", json=BODY, headers={"Origin": PAGE, **KEY})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "Origin" in answer.headers["vary"]
    read = listed(answer, "access-control-expose-headers")
    assert {"retry-after", "x-request-id", "inference-header-content-length"} <= read


def test_errors_can_be_read_too(guarded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Model, "submit", fail)
    for path, headers, status in (
        ("/forecast", {}, 401),
        ("/nope", KEY, 404),
        ("/forecast", KEY, 500),
    ):
        answer = guarded.request("POST", path, json=BODY, headers={"Origin": PAGE, **headers})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)


def test_pages_of_other_origins(guarded: Client) -> None:
    assert preflight(guarded, OTHER).status_code == 400
    answer = guarded.request("POST", "/forecast", json=BODY, headers={"Origin": OTHER, **KEY})
    for each in (answer, preflight(guarded, OTHER)):
        assert "access-control-allow-origin" not in each.headers


def test_any_origin_gets_no_credentials(models: Path) -> None:
    """Browsers refuse `*` with cookies, and the origin itself would let every page use them."""
    with Client(models, cors_origins="*") as client:
        answer = client.request("POST", "/forecast", json=BODY, headers={"Origin": OTHER})
        for each in (answer, preflight(client, OTHER)):
            assert each.status_code == 200
            assert each.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in each.headers


def test_it_is_off_by_default(client: Client) -> None:
    assert preflight(client, PAGE).status_code == 405
    answer = client.request("POST", "/forecast", json=BODY, headers={"Origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control")]
