"""The pipeline with a codec of this test."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from foretell.service.arrays import Arrays
from foretell.service.engine.learned import LearnedOffsets, LedgerView
from foretell.service.engine.run import Run
from foretell.service.errors import (
    DeadlineExceededError,
    InvalidInputError,
    TooLargeError,
    UnknownModelError,
    UnsupportedMediaError,
)
from foretell.service.http.body import ALWAYS, LARGE, LargeAnswer, MemoryBudget, Offload
from foretell.service.http.middleware import RequestContext
from foretell.service.http.pipeline import Parsed, Shared, Wait, serve
from foretell.service.metrics import LEDGER_FORECASTS
from foretell.service.settings import Settings

HERE = threading.current_thread()
BUDGET = 1000


MESSAGE = SimpleNamespace(answer="forecast-1")


class Model:
    """A model that is never run."""

    name = "model"
    manifest = SimpleNamespace(name="model", version="1")
    digest = "sha256:0"


class Decoded:
    """A decoded request, whose body is one word."""

    model: Any = Model()
    windows = 3
    held = 0
    timeout: float | None = None
    coverage: Mapping[float, tuple[int, int]] = {}
    recording_work = 0
    seconds = 0.0
    recorded_here: bool | None = None

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.ran = pending()
        self.deadline = 0.0
        self.ran.succeed({})

    async def run(self, deadline: float, wait: Wait) -> Arrays:
        self.deadline = deadline
        return await wait(self.ran)

    def set_ledger(self, ledger: LedgerView) -> int:
        return 2

    def record(self, outputs: Arrays) -> tuple[Any, Arrays]:
        self.recorded_here = threading.current_thread() is HERE
        time.sleep(self.seconds)
        return MESSAGE, {}


def pending() -> Run:
    """A run that nothing runs, and that may be cancelled."""
    run = Run(lambda run: run.fail(CancelledError()))
    run.submitted, run.began, run.ended, run.batch = 1.0, 2.0, 3.0, 1
    return run


class Codec:
    """A codec that answers with the request's body, and records the thread of each call."""

    media_type: str | None = "text/plain"
    encodings = ("gzip",)
    compress_from = 100
    reference: str | None = "model"

    def __init__(self) -> None:
        self.work, self.memory = [0, 0, 0], [0, 0]
        self.here: dict[str, bool] = {}
        self.decoded = Decoded(b"")

    def _ran(self, name: str) -> None:
        self.here[name] = threading.current_thread() is HERE

    def parsing_work(self, body: bytes | bytearray, request: Request) -> int:
        return self.work[0]

    def parsing_memory(self, body: bytes | bytearray, request: Request) -> int:
        self._ran("memory")
        return self.memory[0]

    def parse(self, body: bytes | bytearray, request: Request) -> Parsed[bytes]:
        self._ran("parse")
        return Parsed(
            bytes(body), methodcaller("find", self.reference), self.work[1], self.memory[1]
        )

    def decode(self, parsed: Parsed[bytes], model: Any) -> Decoded:
        self._ran("decode")
        self.decoded.word = parsed.release()
        return self.decoded

    def encoding_work(self, decoded: Decoded, outputs: Arrays) -> int:
        return self.work[2]

    def encode(self, decoded: Decoded, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        self._ran("encode")
        return decoded.word, {"content-type": "text/x"}


class Registry:
    """A registry with one model."""

    @classmethod
    def find(cls, reference: str | None) -> Any:
        if reference != "model":
            raise UnknownModelError("no such model")
        return Model()


class Server:
    """A pipeline, and what it counted."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(BUDGET)
        self.covered: list[Any] = []
        self.keeps: bool | None = None
        self.remembered: list[Any] = []
        self.dropped = 0.0
        self.path: dict[str, str] = {}
        self.unread = False
        self.context = RequestContext("", {})

    def count(self, name: str, outcome: str, *, amount: float) -> None:
        assert (name, outcome) == (LEDGER_FORECASTS, "dropped")
        self.dropped += amount

    def post(self, *codecs: Codec, body: bytes = b"word", **headers: str) -> Any:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.context = RequestContext("", given)

        async def look_up(find: Any, _: float) -> Any:
            return find(Registry)

        counted = SimpleNamespace(
            backtested=lambda *counts: self.covered.append(counts),
            counts=SimpleNamespace(add=self.count),
        )
        engine: Any = SimpleNamespace(
            find=look_up,
            metrics=counted,
            keeps=self.keeps,
            learned=LearnedOffsets(),
            registry=SimpleNamespace(challengers={}),
            remember=lambda *record: self.remembered.append(record),
        )
        waiting = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if not waiting:
                await asyncio.Event().wait()
            return waiting.pop()

        async def scene() -> Any:
            state = {"context": self.context}
            scope = {"type": "http", "query_string": b"", "state": state, "path_params": self.path}
            offload, before = Offload(), self.budget.reserved
            try:
                settings = Settings.model_construct(
                    timeout_seconds=5,
                    max_body_bytes=100_000,
                    ledger_learn="actuals",
                    ledger_share=1.0,
                )
                shared = Shared(engine, settings, self.budget, offload)
                return await serve(shared, *codecs)(Request(scope, receive))
            finally:
                offload.close()
                self.unread = bool(waiting)
                assert self.budget.reserved == before

        return asyncio.run(scene())


@pytest.fixture
def server() -> Server:
    return Server()


def test_request_is_answered_and_logged(server: Server) -> None:
    codec = Codec()
    answer = server.post(codec)
    assert (answer.body, answer.headers["content-type"]) == (b"word", "text/x")
    assert codec.here == {"parse": True, "decode": True, "encode": True}
    context = server.context
    assert (context.model, context.version, context.windows) == ("model", "1", 3)
    assert [stage for stage, _ in context.stages] == ["decode", "queue", "run", "encode"]
    assert not server.covered


@pytest.mark.parametrize("work", [LARGE, ALWAYS])
@pytest.mark.parametrize(("stage", "name"), [(0, "parse"), (1, "decode"), (2, "encode")])
def test_large_work_runs_in_a_thread(server: Server, work: int, stage: int, name: str) -> None:
    codec = Codec()
    codec.work = [LARGE - 1] * 3
    codec.work[stage] = work
    assert server.post(codec).body == b"word"
    expected = {"parse": True, "decode": True, "encode": True, name: False}
    assert codec.here == (expected | {"memory": False} if name == "parse" else expected)


def test_memory_of_large_parsing_and_of_decoding_is_reserved(server: Server) -> None:
    codec = Codec()
    codec.memory = [BUDGET, BUDGET - 4]
    assert server.post(codec).body == b"word"
    codec.memory[1] += 1
    with pytest.raises(TooLargeError):
        server.post(codec)
    codec.memory, codec.work = [BUDGET, 0], [LARGE, 0, 0]
    with pytest.raises(TooLargeError, match=f"about {BUDGET + 4} bytes"):
        server.post(codec)


def test_memory_held_while_the_model_runs(server: Server) -> None:
    codec = Codec()
    codec.memory = [0, 500]
    codec.decoded.held = 7
    reserved = []
    run = codec.decoded.run

    async def look(deadline: float, wait: Wait) -> Arrays:
        reserved.append(server.budget.reserved)
        return await run(deadline, wait)

    codec.decoded.run = look  # type: ignore[method-assign]
    server.post(codec)
    assert reserved == [7]


@pytest.mark.parametrize("work", [0, LARGE])
def test_unknown_model_is_refused_before_decoding(server: Server, work: int) -> None:
    codec = Codec()
    codec.reference, codec.work = "other", [work, 0, 0]
    with pytest.raises(UnknownModelError):
        server.post(codec)
    assert "decode" not in codec.here
    assert server.context.model == ""


@pytest.mark.parametrize("path", [{"model": "other"}, {"model": "model", "version": "9"}])
def test_unknown_model_of_the_path_is_refused_unread(server: Server, path: dict[str, str]) -> None:
    codec = Codec()
    server.path = path
    with pytest.raises(UnknownModelError):
        server.post(codec)
    assert server.unread
    assert server.context.model == ""


def test_model_of_the_path_is_known_before_the_body(server: Server) -> None:
    codec = Codec()
    codec.reference, server.path = None, {"model": "model"}
    assert server.post(codec).body == b"word"
    with pytest.raises(TooLargeError):
        server.post(codec, body=bytes(BUDGET + 1))
    assert (server.context.model, server.context.version) == ("model", "1")


def test_media_type_selects_the_codec(server: Server) -> None:
    text, other = Codec(), Codec()
    other.media_type = "text/other"
    server.post(text, other)
    assert text.here
    assert not other.here
    server.post(text, other, content_type="text/other; charset=utf-8")
    assert other.here
    with pytest.raises(UnsupportedMediaError, match="text/plain or text/other"):
        server.post(text, other, content_type="text/third")
    text.media_type = None
    assert server.post(text, content_type="text/third").body == b"word"


@pytest.mark.parametrize("size", [99, 100, 65_536, 65_537])
@pytest.mark.parametrize("accepted", [{}, {"accept_encoding": "br, gzip"}])
def test_large_answers_are_compressed_or_counted(server: Server, size: int, accepted: Any) -> None:
    server.budget.limit = 2 * size
    answer = server.post(Codec(), body=b"w" * size, **accepted)
    if accepted and size >= 100:
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(answer.body) == b"w" * size
    else:
        assert "content-encoding" not in answer.headers
        assert answer.body == b"w" * size
    # A large answer counts until it is sent.
    assert isinstance(answer, LargeAnswer) == (len(answer.body) > 65_536)


def test_request_may_shorten_its_time(server: Server) -> None:
    codec = Codec()
    server.post(codec)
    usual = codec.decoded.deadline
    codec.decoded.timeout = 100
    server.post(codec)
    assert codec.decoded.deadline == pytest.approx(usual, abs=2)
    codec.decoded.timeout = 0.02
    codec.decoded.ran = pending()
    with pytest.raises(DeadlineExceededError):
        server.post(codec)
    assert codec.decoded.deadline < usual
    assert isinstance(codec.decoded.ran.error, CancelledError)


def test_header_may_only_shorten_the_time(server: Server) -> None:
    codec = Codec()
    for given, least, most in (("1500", 0, 2), ("900000", 4, 6), ("9" * 12, 4, 6)):
        now = time.monotonic()
        server.post(codec, x_timeout_ms=given)
        assert now + least <= codec.decoded.deadline < now + most
    with pytest.raises(InvalidInputError):
        server.post(codec, x_timeout_ms="soon")


def test_intervals_that_were_compared_are_counted(server: Server) -> None:
    codec = Codec()
    codec.decoded.coverage = {0.8: (3, 4)}
    server.post(codec)
    assert server.covered == [("model", "1", {0.8: (3, 4)})]


@pytest.mark.parametrize("work", [LARGE - 1, LARGE])
def test_large_messages_to_the_ledger_are_made_in_a_thread(server: Server, work: int) -> None:
    codec, server.keeps = Codec(), True
    codec.decoded.recording_work = work
    assert server.post(codec).body == b"word"
    assert codec.here["encode"]
    assert codec.decoded.recorded_here is (work < LARGE)
    assert server.remembered == [(MESSAGE, {})]


def test_message_to_the_ledger_that_is_late_is_dropped_and_the_request_answered(
    server: Server,
) -> None:
    codec, server.keeps = Codec(), True
    codec.decoded.recording_work = LARGE
    codec.decoded.seconds, codec.decoded.timeout = 0.5, 0.3
    assert server.post(codec).body == b"word"
    assert server.remembered == []
    assert server.dropped == 2


def test_forecasts_of_a_full_ledger_are_counted(server: Server) -> None:
    codec, server.keeps = Codec(), False
    assert server.post(codec).body == b"word"
    assert codec.decoded.recorded_here is None
    assert server.dropped == 2
