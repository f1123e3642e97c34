from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from pydantic_core import PydanticUndefined

from foretell.service.errors import StartError
from foretell.service.settings import Settings
from tests.service.process import ROOT


def test_reads_the_environment_and_flags_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_MODELS", "somewhere")
    monkeypatch.setenv("FORETELL_PORT", "9000")
    monkeypatch.setenv("FORETELL_MAX_BATCH", "7")
    settings = Settings.read(port=9001)
    assert (settings.models, settings.port, settings.max_batch) == (Path("somewhere"), 9001, 7)


def test_names_the_variable_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETELL_MODELS", raising=False)
    with pytest.raises(StartError, match=r"^FORETELL_MODELS or --models: required, but missing"):
        Settings.read()


def test_names_variables_that_are_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"FORETELL_MAXBATCH": "1", "foretell_port": "1", "HOME": "/"})
    assert Settings.unknown() == ["FORETELL_MAXBATCH"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "70000"),
        ("DEVICE", "tpu"),
        ("WORKERS", "0"),
        ("WORKERS", "100000"),
        ("THREADS", "0"),
        ("OPERATIONS_PORT", "70000"),
        ("MAX_CONNECTIONS", "0"),
        ("API_KEYS", ""),
        ("API_KEYS", "one,,two"),
        ("ADMIN_KEYS", " "),
        ("TIMEOUT_SECONDS", "0"),
        ("LOG_FORMAT", "xml"),
        ("VERSIONS", "newest"),
        ("PIN", "one"),
        ("PIN", "one@latest"),
        ("PIN", "@1"),
        ("PIN", "one@1,one@2"),
        ("WATCH_SECONDS", "0"),
        ("CORS_ORIGINS", "app.example.com"),
        ("CORS_ORIGINS", "https://app.example.com/"),
        ("CORS_ORIGINS", "https://app.example.com,*"),
        ("CORS_ORIGINS", "https://*.example.com"),
        ("MAX_MEMORY_BYTES", "0"),
    ],
)
def test_names_the_variable_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"FORETELL_{name}", value)
    with pytest.raises(StartError, match=f"^FORETELL_{name}: "):
        Settings.read(models="m")


def test_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_PIN", "one@3, wind-2@17")
    assert Settings.read(models="m").pin == {"one": "3", "wind-2": "17"}


@pytest.mark.parametrize("text", ["*", "https://a.example, http://localhost:5173"])
def test_origins(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FORETELL_CORS_ORIGINS", text)
    assert Settings.read(models="m").cors_origins == tuple(text.split(", "))


def test_a_body_must_fit_the_buffers() -> None:
    with pytest.raises(StartError, match=r"max_body_bytes \(9\) is over max_buffered_bytes \(8\)"):
        Settings.read(models="m", max_body_bytes=9, max_buffered_bytes=8)


def test_a_request_must_fit_the_queue() -> None:
    with pytest.raises(StartError, match=r"max_inputs \(9\) is over max_queue \(8\)"):
        Settings.read(models="m", max_inputs=9, max_queue=8)


def test_a_port_is_taken_once() -> None:
    with pytest.raises(StartError, match=r"port and operations_port are the same \(9\)"):
        Settings.read(models="m", port=9, operations_port=9)
    assert Settings.read(models="m", port=0, operations_port=0).operations_port == 0


def test_keys_are_split_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_API_KEYS", "first-secret, second-secret")
    settings = Settings.read(models="m", admin_keys="third-secret")
    assert [key.get_secret_value() for key in settings.api_keys] == [
        "first-secret",
        "second-secret",
    ]
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "secret" not in text


def test_an_error_does_not_show_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_API_KEYS", "secret,,")
    with pytest.raises(StartError) as caught:
        Settings.read(models="m")
    assert "secret" not in str(caught.value)


def test_the_manual_names_every_setting_and_its_default() -> None:
    manual = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `FORETELL_([A-Z_]+)` \|(.*?)\|", manual, re.MULTILINE)
    described = {name.lower(): default.strip(" `") for name, default in rows}
    assert described.keys() == Settings.model_fields.keys()
    for name, field in Settings.model_fields.items():
        if field.default is PydanticUndefined:
            assert described[name] == "required"
        elif field.default in (None, (), {}):
            assert described[name] == ""
        else:
            read = TypeAdapter(field.annotation).validate_strings(described[name].replace(",", ""))
            assert read == field.default, name
