"""A reader who types the commands of the pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.docs.pages import Block

_SHELL = ("sh", "bash")
# curl's exit status with --fail-with-body where the answer is an error.
_REFUSED = 22
_CURL = "fail-with-body\nsilent\nshow-error\nmax-time = 60\n"


class Reader:
    """Runs programs in a folder, against a server.

    Args:
        folder: Folder with the files that the pages use.
        url: Replaces the pages' `http://localhost:8000`.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._address = httpx.URL(url).netloc.decode()
        (folder / ".curlrc").write_text(_CURL)
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CURL_HOME": str(folder),
            "API_KEY": "secret",
        }

    def run(self, blocks: Sequence[Block], found: str = "") -> None:
        """Run the blocks of a page; its Python is one program.

        Args:
            blocks: Blocks of the page.
            found: Assertions in Python on the program's variables at its end.

        Raises:
            AssertionError: a block fails, or gets another answer than the page shows.
        """
        for block in blocks:
            if block.language in _SHELL:
                self._run_shell(block)
        program = [block for block in blocks if block.language == "python"]
        assert program or not found, "nothing could find that"
        if program:
            self._run_python(program, found)

    def _run_shell(self, block: Block) -> None:
        text = self._located(block.text)
        done = self._call(["bash", "-euo", "pipefail", "-c", text])
        expected = _REFUSED if is_error(block.answer) else 0
        assert done.returncode == expected, (
            f"{block}\nexit status {done.returncode}\n{output_of(done)}"
        )
        if block.answer is not None:
            assert_shows(block.answer, json.loads(done.stdout), str(block))

    def _run_python(self, program: list[Block], found: str) -> None:
        # With the page's line numbers, for tracebacks.
        lines: list[str] = []
        for block in program:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
        path = self._folder / f"{block.page.name}.py"
        path.write_text(self._located("\n".join([*lines, found])))
        done = self._call([sys.executable, path.name])
        assert done.returncode == 0, f"{block.page}\n{output_of(done)}"

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
        )

    def _located(self, text: str) -> str:
        for usual in ("localhost:8000", "127.0.0.1:8000"):
            text = text.replace(usual, self._address)
        return text


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout[-4000:]}{done.stderr[-4000:]}"


def is_error(answer: Any) -> bool:
    """Whether the whole answer is an error, not only one of its outputs."""
    return isinstance(answer, dict) and set(answer) == {"error"}


def assert_shows(shown: Any, answer: Any, place: str) -> None:
    """Require an answer to be like the one a page shows.

    Every member and item must be there with the same type; numbers and texts may differ. An error
    must be equal.
    """
    if isinstance(shown, dict):
        assert isinstance(answer, dict), place
        for name, value in shown.items():
            assert name in answer, f"{place}: {name} is missing from {sorted(answer)}"
            if name == "error":
                assert answer[name] == value, place
            assert_shows(value, answer[name], f"{place}: {name}")
    elif isinstance(shown, list):
        assert isinstance(answer, list), place
        assert len(shown) <= len(answer), place
        for number, value in enumerate(shown):
            assert_shows(value, answer[number], f"{place}: {number}")
    elif isinstance(shown, (int, float)) and not isinstance(shown, bool):
        assert isinstance(answer, (int, float)), f"{place}: {answer!r}"
    else:
        assert type(shown) is type(answer), f"{place}: {answer!r}"
