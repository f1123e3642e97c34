from __future__ import annotations

from pathlib import Path

import pytest

from foretell.service.errors import ForbiddenError, ServiceError, StartError, UnauthorizedError
from foretell.service.settings import Settings
from foretell.service.web.keys import Keys

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
