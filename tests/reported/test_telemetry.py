"""Telemetry that begins with the import of onnxruntime (microsoft/onnxruntime#25573)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

_USERS = ("foretell.export.runtime", "foretell.service.engine.runtime")
_OPEN = {
    _USERS[0]: "import foretell.export.runtime",
    _USERS[1]: "from foretell.service.engine.runtime import Runtime; Runtime('cpu')",
}


@pytest.mark.parametrize("module", _USERS)
def test_onnxruntime_leaves_nothing_in_the_home_folder(module: str, tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if "TELEMETRY" not in name}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _OPEN[module]],
        cwd=ROOT,
        env=environment | {"HOME": str(tmp_path)},
        check=True,
    )
    assert list(tmp_path.rglob("*onnxruntime*")) == []


def test_an_operator_may_switch_telemetry_on() -> None:
    code = "import os, foretell; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for given, expected in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")):
        environment = {name: text for name, text in os.environ.items() if "TELEMETRY" not in name}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment | given,
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == expected


def test_the_package_is_imported_before_onnxruntime() -> None:
    # Its own `__init__` sets the variable: it may import nothing that imports onnxruntime.
    names = {
        alias.name
        for node in ast.parse((ROOT / "foretell" / "__init__.py").read_text()).body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert names == {"os"}
