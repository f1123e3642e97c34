"""deploy/foretell.env: every setting, each commented out."""

from __future__ import annotations

import re

import pytest

from foretell.service.settings import Settings
from tests.deploy.files import DEFAULTS, DEPLOY

TEXT = (DEPLOY / "foretell.env").read_text()
LINES = re.findall(r"^#(FORETELL_\w+)=(.*)$", TEXT, re.MULTILINE)


def test_every_setting_once() -> None:
    assert sorted(name for name, _ in LINES) == sorted(
        f"FORETELL_{name.upper()}" for name in Settings.model_fields
    )


def test_as_it_is_it_sets_nothing() -> None:
    assert [line for line in TEXT.splitlines() if line and not line.startswith("#")] == []


def test_values_are_the_defaults_or_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LINES:
        # Neither systemd nor every Compose reads comments or quotes behind a value.
        assert not set(value) & set("\"'# "), name
        monkeypatch.setenv(name, value)
    read = Settings.read()
    for name, field in Settings.model_fields.items():
        if field.is_required() or field.default in (None, (), {}):
            assert getattr(read, name) != getattr(DEFAULTS, name) or field.is_required(), name
        else:
            assert getattr(read, name) == field.default, name
