from __future__ import annotations

import json
import logging
import sys

import pytest

from service import logs


def record(message: str = "hello %s", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("some.where", logging.INFO, "f.py", 1, message, ("you",), None)
    made.fields = fields
    return made


def test_json_is_one_object_a_line() -> None:
    text = logs.JsonFormatter().format(record("hello\n%s", status=200, path="/x\ny"))
    assert "\n" not in text
    entry = json.loads(text)
    assert entry.pop("time").endswith("+00:00")
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
        assert json.loads(logs.JsonFormatter().format(record()))["request_id"] == "abc"
        assert logs.TextFormatter().format(record(a=1)).endswith("hello you request_id=abc a=1")
    finally:
        logs.request_id.reset(token)


def test_exceptions_are_members() -> None:
    failed = record()
    try:
        raise ValueError("broken")
    except ValueError:
        failed.exc_info = sys.exc_info()
    assert "ValueError: broken" in json.loads(logs.JsonFormatter().format(failed))["exception"]


def test_configure_sends_everything_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    try:
        logs.configure("warning", "json")
        logging.getLogger("any").info("not this")
        logging.getLogger("any").warning("this")
    finally:
        root.handlers = handlers
        root.setLevel(level)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "this"
