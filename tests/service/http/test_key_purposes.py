"""Keys with namespaces, and lists of keys for actual values and for the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request

from foretell.service.errors import ForbiddenError, StartError, UnauthorizedError
from foretell.service.http.auth import Caller, Keys, Purpose
from foretell.service.http.middleware import RequestMiddleware, request_context
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.service.client import Client, connect

API = {"api_keys": "reader"}
ADMIN = {"admin_keys": "boss"}
WRITER = {"actuals_keys": "writer"}
SCORER = {"ledger_keys": "scorer"}
ALL = {**API, **ADMIN, **WRITER, **SCORER}


def keys_of(**lists: Any) -> Keys:
    return Keys.read(Settings(models="m", **lists))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def outcome(keys: Keys, key: str, purpose: Purpose) -> int:
    try:
        keys.require(bearer(key), purpose)
    except (ForbiddenError, UnauthorizedError) as error:
        return error.status
    return 200


# Statuses without a key, with an unknown one, and with those of API, actuals, ledger and admins.
KEYS = ("", "unknown", "reader", "writer", "scorer", "boss")
OPEN, ADMINS = [200] * 6, [401, 401, 403, 403, 403, 200]


@pytest.mark.parametrize(
    ("lists", "purpose", "statuses"),
    [
        (ALL, Purpose.FORECAST, [401, 401, 200, 403, 403, 200]),
        (ALL, Purpose.ACTUALS, [401, 401, 403, 200, 403, 200]),
        (ALL, Purpose.LEDGER, [401, 401, 403, 403, 200, 200]),
        (ALL, Purpose.ADMIN, ADMINS),
        *(({}, purpose, OPEN) for purpose in (Purpose.FORECAST, Purpose.ACTUALS, Purpose.LEDGER)),
        # With API keys, purposes without a list are for admin keys alone.
        ({**API, **ADMIN}, Purpose.ACTUALS, [401, 401, 403, 401, 401, 200]),
        ({**API, **ADMIN, **WRITER}, Purpose.LEDGER, [401, 401, 403, 403, 401, 200]),
        # Without them, they are open, unless they have a list.
        (ADMIN, Purpose.ACTUALS, OPEN),
        ({**ADMIN, **WRITER}, Purpose.FORECAST, OPEN),
        ({**ADMIN, **WRITER}, Purpose.LEDGER, OPEN),
        ({**ADMIN, **WRITER}, Purpose.ACTUALS, [401, 401, 401, 200, 401, 200]),
        ({**ADMIN, **SCORER}, Purpose.LEDGER, [401, 401, 401, 401, 200, 200]),
    ],
)
def test_keys_allow_the_requests_of_their_lists(
    lists: dict[str, str], purpose: Purpose, statuses: list[int]
) -> None:
    keys = keys_of(**lists)
    assert [outcome(keys, key, purpose) for key in KEYS] == statuses


@pytest.mark.parametrize(
    ("purpose", "key", "message"),
    [
        (Purpose.FORECAST, "writer", "may not forecast .* or one of FORETELL_API_KEYS$"),
        (Purpose.ACTUALS, "reader", "may not write actual .* or one of FORETELL_ACTUALS_KEYS$"),
        (Purpose.LEDGER, "reader", "may not read scores .* or one of FORETELL_LEDGER_KEYS$"),
        (Purpose.ADMIN, "scorer", "may not load .*: expected an admin key$"),
    ],
)
def test_message_names_the_setting(purpose: Purpose, key: str, message: str) -> None:
    with pytest.raises(ForbiddenError, match=message):
        keys_of(**ALL).require(bearer(key), purpose)


def test_key_may_be_in_several_lists() -> None:
    keys = keys_of(api_keys="one shared", actuals_keys="one shared, two")
    assert [outcome(keys, "one", purpose) for purpose in Purpose] == [200, 200, 403, 403]
    caller = keys.require(bearer("one"), Purpose.ACTUALS)
    assert caller.purposes == {Purpose.FORECAST, Purpose.ACTUALS}
    assert (caller.namespace, caller.admin) == ("shared", False)


def test_namespaces_come_from_settings_and_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("three tenant-c\r\n\n  four   Tenant_4.x  \nfive\n")
    keys = keys_of(
        api_keys=f"one tenant-a,two   {'b' * 64} ,six", api_keys_file=file, admin_keys="boss ops"
    )
    for key, namespace in (
        ("one", "tenant-a"),
        ("two", "b" * 64),
        ("three", "tenant-c"),
        ("four", "Tenant_4.x"),
        ("five", ""),
        ("six", ""),
        ("boss", "ops"),
    ):
        assert keys.require(bearer(key)).namespace == namespace, key
    assert [keys.require(bearer(key)).admin for key in ("one", "boss")] == [False, True]


def test_known_key_has_its_namespace_where_no_key_is_needed() -> None:
    keys = keys_of(actuals_keys="writer tenant-a", admin_keys="boss")
    assert keys.require(bearer("writer")).namespace == "tenant-a"
    assert keys.require(bearer("boss")).admin
    for headers in ({}, bearer("unknown")):
        assert keys.require(headers) == Caller()
    assert Keys().require(bearer("unknown"), Purpose.LEDGER) == Caller()


@pytest.mark.parametrize("namespace", ["two words", "b" * 65, "a/b", "caf\xe9", "a\tb", "a:b"])
@pytest.mark.parametrize("name", ["api", "admin", "actuals", "ledger"])
def test_wrong_namespace_is_refused(tmp_path: Path, namespace: str, name: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"one\nsecret {namespace}\n", encoding="utf-8")
    for lists, place in (
        ({f"{name}_keys": f"one,secret {namespace}"}, "key 2"),
        ({f"{name}_keys_file": file}, f"{file}: line 2"),
    ):
        [setting] = lists
        with pytest.raises(StartError) as caught:
            keys_of(**lists)
        message = str(caught.value)
        assert message.startswith(f"FORETELL_{setting.upper()}: {place}: expected a key, or")
        # Either part may be a key.
        assert "secret" not in message
        assert namespace not in message


def test_key_has_one_namespace(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("other\nsecret tenant-a\n")
    for lists in ({"ledger_keys": "secret tenant-b"}, {"ledger_keys": "secret"}):
        with pytest.raises(StartError) as caught:
            keys_of(api_keys_file=file, **lists)
        assert str(caught.value) == (
            "FORETELL_LEDGER_KEYS: key 1: the key has another namespace in "
            f"FORETELL_API_KEYS_FILE: {file}: line 2; give it the same one"
        )
    with pytest.raises(StartError, match=r"^FORETELL_API_KEYS: key 2: the key has another"):
        keys_of(api_keys="secret a,secret b")


@pytest.mark.parametrize("name", ["api", "admin", "actuals", "ledger"])
def test_every_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("foretell.service.http.auth._POLL_SECONDS", 0.001)
    file = tmp_path / "keys"
    file.write_text("one tenant-a\n")
    keys = keys_of(**{f"{name}_keys_file": file})
    purpose = Purpose(name)

    async def scene() -> None:
        following = asyncio.create_task(keys.follow())
        for line, key in (("one tenant-b", "one"), ("two tenant-b", "two")):
            file.write_text(f"{line}\n")
            while outcome(keys, key, purpose) != 200 or (
                keys.require(bearer(key), purpose).namespace != "tenant-b"
            ):
                await asyncio.sleep(0.001)
        following.cancel()

    asyncio.run(asyncio.wait_for(scene(), 30))
    assert outcome(keys, "one", purpose) == 401


def test_namespaces_in_conflict_keep_the_old_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("writer tenant-a\n")
    keys = keys_of(api_keys="writer tenant-a", actuals_keys_file=file)
    file.write_text("writer tenant-b\n")
    keys.refresh()
    assert "another namespace" in caplog.text
    assert "writer" not in caplog.text
    assert keys.require(bearer("writer"), Purpose.ACTUALS).namespace == "tenant-a"


@pytest.fixture(scope="module")
def routed() -> FastAPI:
    """Routes that answer with what the middleware found out about the key."""

    async def describe(request: Request) -> list[str | bool]:
        context = request_context(request.scope)
        return [context.namespace, context.admin, bool(context.key)]

    forecasts, actuals, ledger = APIRouter(), APIRouter(), APIRouter()
    forecasts.add_api_route("/forecast", describe, methods=["POST"])
    actuals.add_api_route("/actuals", describe, methods=["POST"])
    actuals.add_api_route("/series/{name}", describe, methods=["DELETE"])
    ledger.add_api_route("/series/{name}", describe, methods=["GET"])
    app = FastAPI()
    for router in (forecasts, actuals, ledger):
        app.include_router(router)
    app.add_middleware(
        RequestMiddleware,
        metrics=Metrics(),
        keys=keys_of(
            api_keys="reader tenant-a",
            actuals_keys="writer tenant-a",
            ledger_keys="scorer tenant-b",
            admin_keys="boss",
        ),
        root_path="/prefix",
        purposes={Purpose.ACTUALS: actuals.routes, Purpose.LEDGER: ledger.routes},
    )
    return app


def ask(app: FastAPI, method: str, path: str, key: str) -> httpx.Response:
    async def send() -> httpx.Response:
        async with connect(app) as http:
            return await http.request(method, path, headers=bearer(key))

    return asyncio.run(send())


@pytest.mark.parametrize("prefix", ["", "/prefix"])
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/forecast", "reader"),
        ("POST", "/actuals", "writer"),
        ("DELETE", "/series/s", "writer"),
        ("GET", "/series/s", "scorer"),
        ("HEAD", "/series/s", "scorer"),
        # Unknown paths need a key for forecasts.
        ("GET", "/actuals/more", "reader"),
    ],
)
def test_routes_decide_which_keys_are_needed(
    routed: FastAPI, method: str, path: str, allowed: str, prefix: str
) -> None:
    for key in ("reader", "writer", "scorer", "boss"):
        answer = ask(routed, method, prefix + path, key)
        assert (answer.status_code == 403) == (key not in {allowed, "boss"}), key
    assert ask(routed, method, prefix + path, "").status_code == 401


def test_unknown_method_is_named_to_keys_of_the_path(routed: FastAPI) -> None:
    assert ask(routed, "GET", "/actuals", "writer").status_code == 405
    assert ask(routed, "PUT", "/series/s", "writer").status_code == 405
    assert ask(routed, "GET", "/actuals", "reader").status_code == 403


def test_context_has_the_namespace_of_the_key(routed: FastAPI) -> None:
    assert ask(routed, "POST", "/actuals", "writer").json() == ["tenant-a", False, True]
    assert ask(routed, "GET", "/series/s", "scorer").json() == ["tenant-b", False, True]
    assert ask(routed, "GET", "/series/s", "boss").json() == ["", True, True]


BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[Client]:
    with Client(models, **ALL) as client:
        yield client


@pytest.mark.parametrize("key", ["writer", "scorer"])
def test_keys_of_other_lists_may_not_forecast(guarded: Client, key: str) -> None:
    refused = guarded.forecast(BODY, **bearer(key))
    assert refused.status_code == 403
    assert "FORETELL_API_KEYS" in refused.json()["error"]["message"]
    assert guarded.request("GET", "/models", headers=bearer(key)).status_code == 403
    path = "/v2/repository/models/repeat/unload"
    assert guarded.request("POST", path, headers=bearer(key)).status_code == 403
    assert guarded.forecast(BODY, **bearer("reader")).status_code == 200


def test_log_names_a_known_key_where_no_key_is_needed(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(models, admin_keys="boss") as client, caplog.at_level("INFO", "foretell.access"):
        for key in ("boss", "unknown", ""):
            assert client.forecast(BODY, **bearer(key)).status_code == 200
    named = [
        bool(record.fields["key"]) for record in caplog.records if record.name == "foretell.access"
    ]
    assert named == [True, False, False]
