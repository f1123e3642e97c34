from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from foretell.service import logs
from tests.support.process import ROOT
from tests.support.waiting import until


def record(message: str = "hello %s", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("some.where", logging.INFO, "f.py", 1, message, ("you",), None)
    made.fields = fields
    return made


def test_json_is_one_object_a_line() -> None:
    text = logs.JsonFormatter().format(record("hello\n%s", status=200, path="/x\ny"))
    assert "\n" not in text
    entry = json.loads(text)
    assert entry.pop("time").endswith("+00:00")
    assert entry.pop("process") == os.getpid()
    assert entry == {
        "level": "info",
        "logger": "some.where",
        "message": "hello\nyou",
        "status": 200,
        "path": "/x\ny",
    }
    entry = json.loads(logs.JsonFormatter().format(record("no file %s", name="a\udcff")))
    assert entry["name"] == "a\udcff"


def test_text_is_one_line() -> None:
    text = logs.TextFormatter().format(record("a\r\n%s", path="/x\n2024 ERROR \x1b[2J\u2028é\\"))
    assert text.endswith(r"a\r\nyou path=/x\n2024 ERROR \x1b[2J\u2028é" + "\\")
    assert len(text.splitlines()) == 1


def test_request_id_and_exception_are_members() -> None:
    made = record(a=1)
    token = logs.request_id.set("abc")
    try:
        raise ValueError("broken")
    except ValueError:
        made.exc_info = sys.exc_info()
        captured = logs.captured(made)
    finally:
        logs.request_id.reset(token)
    entry = json.loads(logs.JsonFormatter().format(captured))
    assert entry["request_id"] == "abc"
    assert "ValueError: broken" in entry["exception"]
    text = logs.TextFormatter().format(captured)
    assert "hello you request_id=abc a=1\n" in text
    assert "ValueError: broken" in text


@pytest.mark.parametrize("extra", [{"level": 5}, {"logger": "x"}, {"color_message": "\x1b[1m"}])
def test_extras_of_libraries_are_not_written(extra: dict[str, object]) -> None:
    made = record(status=200)
    expected = json.loads(logs.JsonFormatter().format(made))
    vars(made).update(extra)
    assert json.loads(logs.JsonFormatter().format(made)) == expected


class Pipe:
    """A pipe for lines, with a reader that reads on demand."""

    def __init__(self) -> None:
        self._reader, self.file = os.pipe()
        os.set_blocking(self._reader, False)
        self._read = b""

    def fill(self) -> None:
        """Fill the pipe, so that a write would block."""
        os.set_blocking(self.file, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.file, b"\n" * 1000)
        os.set_blocking(self.file, True)

    @property
    def lines(self) -> list[str]:
        """All lines that were written."""
        with suppress(BlockingIOError):
            while more := os.read(self._reader, 1 << 16):
                self._read += more
        return self._read.decode().split("\n")

    def disconnect(self) -> None:
        os.close(self._reader)

    def replace(self, other: Pipe) -> None:
        """Replace this pipe by another one for later lines."""
        os.dup2(other.file, self.file)


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def writer(pipe: Pipe, max_queued: int = 100) -> tuple[logging.Logger, logging.Handler]:
    handler = logs.BackgroundHandler(pipe.file, max_queued)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger, handler


def finished(*threads: threading.Thread) -> bool:
    """Whether the threads end within ten seconds each."""
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def test_stuck_reader_blocks_no_thread(pipe: Pipe) -> None:
    logger, handler = writer(pipe)
    pipe.fill()

    def fail(name: int) -> None:
        for number in range(200):
            logger.error("%d %d", name, number)

    threads = [threading.Thread(target=fail, args=(name,), daemon=True) for name in range(4)]
    for thread in threads:
        thread.start()
    assert finished(*threads)
    end = threading.Thread(target=handler.close, daemon=True)
    end.start()
    assert finished(end)
    dropped = " records were dropped: the log's reader is too slow"

    def reported() -> int:
        return sum(int(line.removesuffix(dropped)) for line in pipe.lines if dropped in line)

    def written() -> list[list[str]]:
        return [line.split() for line in pipe.lines if line and dropped not in line]

    until(lambda: reported() > 0 and reported() + len(written()) == 800)
    for name in range(4):
        numbers = [int(number) for thread, number in written() if int(thread) == name]
        assert numbers == sorted(numbers)


def test_error_does_not_wait_for_others(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_GATHER_SECONDS", 3600.0)
    logger, _ = writer(pipe)
    for number in range(3):
        logger.info("before")
        logger.error("%d", number)
        until(lambda: str(number) in pipe.lines)  # noqa: B023 - called at once


def test_many_errors_leave_no_queue_behind(pipe: Pipe) -> None:
    handler = logs.BackgroundHandler(pipe.file)
    for _ in range(1000):
        handler.handle(logging.makeLogRecord({"levelno": logging.ERROR}))
    handler.close()
    assert handler._queue.empty()
    assert handler._urgent.qsize() <= 1


def test_line_is_written_whole_by_partial_writes(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, handler = writer(pipe)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    logger.info("a line of some length")
    handler.close()
    assert pipe.lines == ["a line of some length", ""]


def test_close_writes_all_lines(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(logs, "_LAST_SECONDS", 60.0)
    logger, handler = writer(pipe)
    for number in range(50):
        logger.info("%d", number)
    handler.close()
    assert pipe.lines == [*map(str, range(50)), ""]
    logger.info("late")
    handler.close()
    assert "late" in pipe.lines


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_signal_handler_may_log_at_any_line(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    monkeypatch.setattr(logs, "_GATHER_SECONDS", 0.0)
    logger, _ = writer(pipe)
    passed = 0

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        nonlocal passed
        if event == "line":
            passed += 1
            if passed == place:
                # Like a signal handler: within the same thread, and without interruption.
                logger.log(level, "signal")
        return interrupt

    def log() -> None:
        sys.settrace(interrupt)
        logger.log(level, "line")
        sys.settrace(None)

    place = 0
    while passed >= place:
        passed, place = 0, place + 1
        thread = threading.Thread(target=log, daemon=True)
        thread.start()
        assert finished(thread)
        until(lambda: pipe.lines.count("line") == place)  # noqa: B023 - called at once
    assert place > 20
    assert pipe.lines.count("signal") == place - 1


class Unprintable:
    def __str__(self) -> str:
        raise ValueError


def test_unwritable_record_does_not_lose_others(pipe: Pipe) -> None:
    logger, handler = writer(pipe)
    handler.setFormatter(logs.TextFormatter())
    logger.info("%d", "no number")
    logger.info("fields", extra={"fields": {"a": Unprintable()}})
    logger.error("fine", exc_info=ValueError("no character: \udc80"))
    handler.close()
    *unwritable, fine, reason, end = pipe.lines
    assert len(unwritable) == 2
    for line in unwritable:
        assert f"WARNING foretell.service.logs: a record cannot be written: {__file__}:" in line
    assert fine.endswith("test: fine")
    assert (reason, end) == (r"ValueError: no character: \udc80", "")


def test_logging_continues_after_the_reader_disconnects(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LAST_SECONDS", 60.0)
    logger, handler = writer(pipe)
    pipe.disconnect()
    logger.error("lost")
    handler.close()
    other = Pipe()
    pipe.replace(other)
    logger.error("found")
    until(lambda: "found" in other.lines)
    assert other.lines == ["found", ""]


PROGRAM = """
import logging, sys
from foretell.service import logs
logs.configure("info", "json")
for number in range(100):
    logging.getLogger("any").debug("not this")
    logging.getLogger("any").info("%d", number)
"""


@pytest.mark.parametrize(
    ("end", "status", "is_full"),
    [
        ("", 0, False),
        ("raise ValueError('unforeseen')", 1, False),
        ("sys.exit(3)", 3, False),
        # The pipe has no reader.
        ("", 0, True),
        ("logging.error('last'); sys.exit(3)", 3, True),
    ],
)
def test_ending_process_writes_all_lines(pipe: Pipe, end: str, status: int, is_full: bool) -> None:
    if is_full:
        pipe.fill()
    program = [sys.executable, "-c", PROGRAM + end]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=pipe.file, timeout=60)
    assert (done.returncode, done.stdout) == (status, b"")
    lines = [json.loads(line) for line in pipe.lines if line.startswith("{")]
    assert [line["message"] for line in lines] == ([] if is_full else [*map(str, range(100))])
    assert ("unforeseen" in "".join(pipe.lines)) == (status == 1)


# Holds the lock for ever.
_HOLDER = """
import fcntl, sys
fcntl.lockf(1, fcntl.LOCK_EX)
print("held", file=sys.stderr, flush=True)
sys.stdin.read()
"""


@contextmanager
def held(file: int) -> Iterator[None]:
    """Another process holds a lock on a file within `with`."""
    pipe = subprocess.PIPE
    program = [sys.executable, "-c", _HOLDER]
    with subprocess.Popen(program, stdin=pipe, stdout=file, stderr=pipe) as holder:
        assert holder.stderr is not None
        assert holder.stderr.readline() == b"held\n"
        yield
        holder.kill()


def test_lock_of_another_program_does_not_stop_logging(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, _ = writer(pipe)
    with held(pipe.file):
        logger.info("first")
        until(lambda: "first" in pipe.lines)
        logger.info("second")
        until(lambda: "second" in pipe.lines)
    # Lines wait until the lock is released.
    monkeypatch.setattr(logs, "_LOCK_SECONDS", 3600.0)
    with held(pipe.file):
        logger.error("third")
        time.sleep(0.2)
        assert "third" not in pipe.lines
    until(lambda: "third" in pipe.lines)


def test_lines_are_written_in_atomic_pieces(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    plain = os.write

    def write(file: int, data: bytes) -> int:
        if file == pipe.file:
            written.append(data)
        return plain(file, data)

    monkeypatch.setattr(os, "write", write)
    logger, handler = writer(pipe)
    for number in range(100):
        logger.info("%d %s", number, "x" * 200)
    handler.close()
    assert sum(data.count(b"\n") for data in written) == 100
    assert all(data.endswith(b"\n") and len(data) <= select.PIPE_BUF for data in written)


def test_nonblocking_file_gets_all_lines(pipe: Pipe) -> None:
    logger, _ = writer(pipe)
    pipe.fill()
    os.set_blocking(pipe.file, False)
    for number in range(50):
        logger.error("%d %s", number, "x" * 5000)
    until(lambda: [line.split()[0] for line in pipe.lines if line] == [*map(str, range(50))])
