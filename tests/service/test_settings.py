from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import StartError
from service.settings import Settings


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
        ("TIMEOUT_SECONDS", "0"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_names_the_variable_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"FORETELL_{name}", value)
    with pytest.raises(StartError, match=f"^FORETELL_{name}: "):
        Settings.read(models="m")


def test_a_body_must_fit_the_buffers() -> None:
    with pytest.raises(StartError, match=r"max_body_bytes \(9\) is over max_buffered_bytes \(8\)"):
        Settings.read(models="m", max_body_bytes=9, max_buffered_bytes=8)


def test_a_request_must_fit_the_queue() -> None:
    with pytest.raises(StartError, match=r"max_inputs \(9\) is over max_queue \(8\)"):
        Settings.read(models="m", max_inputs=9, max_queue=8)
