"""Records the calls of our functions in every process of a server; Python imports it at its start.

`FORETELL_CALLS` names a folder, `FORETELL_CALLS_TREE` the root of our code. The first byte of
`folder/state` says what is recorded, and a change of the second that it is to be written down.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from multiprocessing import current_process
from pathlib import Path
from types import CodeType, FrameType

_NOTHING, _ALL, _OTHER_THREADS = range(3)
_POLL_SECONDS = 0.005
# They are lines of the function that they stand in, and Python 3.12 runs most of them within it.
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Recorder:
    """Records the calls of a process.

    Args:
        folder: Has the state, and takes what is written.
        tree: The root of our code.
    """

    def __init__(self, folder: Path, tree: Path) -> None:
        self._folder = folder
        self._prefixes = tuple(f"{tree}/{name}/" for name in ("bundle", "foretell", "service"))
        self._tree = f"{tree}/"
        with (folder / "state").open("rb") as file:
            self._state = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._paths: dict[CodeType, str | None] = {}
        self._calls: list[tuple[int, int, CodeType]] = []
        self._main = threading.main_thread().ident

    def start(self) -> None:
        """Record this thread and those that it starts."""
        (self._folder / f"{os.getpid()}.process").touch()
        threading.Thread(target=self._serve, name="recorder", daemon=True).start()
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        state = self._state[0]
        if state == _NOTHING or event != "call":
            return
        thread = threading.get_ident()
        if state == _OTHER_THREADS and thread == self._main:
            return
        code = frame.f_code
        try:
            path = self._paths[code]
        except KeyError:
            path = self._paths[code] = self._path(code)
        if path is not None:
            self._calls.append((time.monotonic_ns(), thread, code))

    def _path(self, code: CodeType) -> str | None:
        path = os.path.realpath(code.co_filename)
        if code.co_name in _INLINE or not path.startswith(self._prefixes):
            return None
        return path.removeprefix(self._tree)

    def _serve(self) -> None:
        written = 0
        while True:
            time.sleep(_POLL_SECONDS)
            number = self._state[1]
            if number != written:
                written = number
                self._write(number)

    def _write(self, number: int) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        calls, self._calls = self._calls, []
        lines = [
            [at, names.get(thread, "ended"), self._paths[code], code.co_qualname]
            for at, thread, code in calls
        ]
        path = self._folder / f"{os.getpid()}.{number}"
        part = path.with_suffix(".part")
        part.write_text(json.dumps([current_process().name, lines]))
        part.rename(path)


if "FORETELL_CALLS" in os.environ:
    Recorder(Path(os.environ["FORETELL_CALLS"]), Path(os.environ["FORETELL_CALLS_TREE"])).start()
