from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading

import pytest

from service.telemetry import logs


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


def test_text_is_one_line_too() -> None:
    text = logs.TextFormatter().format(record("a\r\n%s", path="/x\n2024 ERROR \x1b[2J\u2028é\\"))
    assert text.endswith(r"a\r\nyou path=/x\n2024 ERROR \x1b[2J\u2028é" + "\\")
    assert len(text.splitlines()) == 1


def test_the_request_id_goes_along() -> None:
    token = logs.request_id.set("abc")
    try:
        one, other = logs.captured(record()), logs.captured(record(a=1))
    finally:
        logs.request_id.reset(token)
    assert json.loads(logs.JsonFormatter().format(one))["request_id"] == "abc"
    assert logs.TextFormatter().format(other).endswith("hello you request_id=abc a=1")


def test_exceptions_are_members() -> None:
    failed = record()
    try:
        raise ValueError("broken")
    except ValueError:
        failed.exc_info = sys.exc_info()
    captured = logs.captured(failed)
    assert "ValueError: broken" in json.loads(logs.JsonFormatter().format(captured))["exception"]
    assert "ValueError: broken" in logs.TextFormatter().format(captured)


class Stuck(io.StringIO):
    """A stream whose reader waits for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.reached = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.gate.wait(60)
        return super().write(text)


def writer(stream: io.StringIO, most_waiting: int = 100) -> tuple[logging.Logger, logging.Handler]:
    handler = logs.BackgroundHandler(stream, most_waiting)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger, handler


def test_a_stuck_reader_holds_nobody_up_and_is_told_what_it_missed() -> None:
    stream = Stuck()
    logger, handler = writer(stream, most_waiting=3)
    logger.info("first")
    assert stream.reached.wait(60)
    for number in range(5):
        logger.info("%d", number)
    stream.gate.set()
    handler.close()
    first, *others, last = stream.getvalue().splitlines()
    assert (first, others) == ("first", ["0", "1", "2"])
    assert last == "2 records were dropped: the log's reader is too slow"


def test_an_error_is_written_before_the_caller_goes_on() -> None:
    stream = io.StringIO()
    logger, handler = writer(stream)
    logger.info("before")
    logger.error("error")
    assert stream.getvalue() == "before\nerror\n"
    handler.close()


def test_the_end_loses_nothing() -> None:
    stream = io.StringIO()
    logger, handler = writer(stream)
    for number in range(50):
        logger.info("%d", number)
    handler.close()
    logger.info("late")
    assert stream.getvalue().split() == [*map(str, range(50)), "late"]


def test_a_record_that_cannot_be_written_sinks_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    stream = io.StringIO()
    logger, handler = writer(stream)
    logger.info("%d", "no number")
    logger.info("fine")
    handler.close()
    assert stream.getvalue() == "fine\n"


def test_a_reader_who_left_ends_nothing() -> None:
    stream = io.StringIO()
    logger, handler = writer(stream)
    stream.close()
    logger.error("lost")
    handler.close()


def test_configure_sends_everything_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    try:
        logs.configure("warning", "json")
        logging.getLogger("any").info("not this")
        logging.getLogger("any").warning("this")
        root.handlers[0].close()
    finally:
        root.handlers = handlers
        root.setLevel(level)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "this"
