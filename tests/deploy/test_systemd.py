"""deploy/foretell.service, by systemd's own checks, and deploy/foretell.env, its settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.service.settings import Settings
from tests.deploy.files import DEFAULTS, DEPLOY, END_SECONDS, seconds

TEXT = (DEPLOY / "foretell.service").read_text()
ENVIRONMENT = (DEPLOY / "foretell.env").read_text()
LINES = re.findall(r"^#(FORETELL_\w+)=(.*)$", ENVIRONMENT, re.MULTILINE)
# From 0 to 100, lower is better; a unit without any hardening options has 96.
MOST_EXPOSED = 20

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here (Debian: systemd)"
)


def values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", TEXT, re.MULTILINE)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "foretell.service"
    # It looks for the program.
    unit.write_text(TEXT.replace("/opt/foretell/bin/foretell", sys.executable))
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_unit_has_a_low_exposure() -> None:
    done = analyze(
        "security", "--offline=true", f"--threshold={MOST_EXPOSED}", DEPLOY / "foretell.service"
    )
    assert done.returncode == 0, done.stdout


def test_stop_timeout_covers_drain_and_grace() -> None:
    [stop] = values("TimeoutStopSec")
    own = DEFAULTS.drain_delay_seconds + DEFAULTS.grace_seconds
    assert seconds(stop) >= own + END_SECONDS
    # The first process signals the others.
    assert values("KillMode") == ["mixed"]


def test_variables_of_the_unit_are_settings() -> None:
    given = dict(re.findall(r"(FORETELL_\w+)=(\S+)", " ".join(values("Environment"))))
    assert given.items() <= dict(LINES).items()
    [most] = values("MemoryMax")
    assert int(given["FORETELL_MAX_MEMORY_BYTES"]) < int(most.removesuffix("G")) << 30


def test_environment_file_lists_every_setting_once_as_a_comment() -> None:
    names = sorted(f"FORETELL_{name.upper()}" for name in Settings.model_fields)
    assert sorted(name for name, _ in LINES) == names
    assert [line for line in ENVIRONMENT.splitlines() if line and not line.startswith("#")] == []


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
