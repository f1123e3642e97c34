from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foretell.service.errors import BuffersFullError, TooLargeError
from foretell.service.http.body import LargeAnswer, MemoryBudget


def test_requests_share_the_budget_and_give_back() -> None:
    budget = MemoryBudget(10)
    with budget.share() as one:
        one.reserve(4)
        with budget.share() as other:
            other.reserve(6)
            with pytest.raises(BuffersFullError, match="holds 10 bytes of requests") as full:
                one.reserve(1)
            assert full.value.retry_after >= 1
        one.reserve(6)
    with budget.share() as one:
        one.reserve(10)


def test_what_a_request_gives_back_itself() -> None:
    with MemoryBudget(10).share() as share:
        share.reserve(4)
        share.reserve(6)
        share.reserve(-6)
        share.reserve(6)


def test_what_a_request_keeps_replaces_what_it_had() -> None:
    budget = MemoryBudget(10)
    with budget.share() as one, budget.share() as other:
        one.reserve(8)
        one.reserve(3 - one.reserved)
        other.reserve(7)
        with pytest.raises(BuffersFullError):
            one.reserve(4 - one.reserved)
        with pytest.raises(TooLargeError):
            one.reserve(11 - one.reserved)
        one.reserve(0 - one.reserved)
        other.reserve(3)
    assert budget.reserved == 0


def test_what_no_request_could_have_is_no_reason_to_try_again() -> None:
    budget = MemoryBudget(10)
    with budget.share() as one, budget.share() as other:
        one.reserve(4)
        other.reserve(4)
        with pytest.raises(TooLargeError, match=r"about 11 bytes.* 10 \(max_buffered_bytes\)"):
            one.reserve(7)
        with pytest.raises(BuffersFullError):
            one.reserve(6)


def test_a_failed_request_gives_back_too() -> None:
    budget = MemoryBudget(10)

    def fail() -> None:
        with budget.share() as share:
            share.reserve(10)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    with budget.share() as share:
        share.reserve(10)


def test_an_answer_that_is_larger_than_all_of_it() -> None:
    async def send(_: Any) -> None:
        raise AssertionError

    size = 64 * 1024 + 1
    answer = LargeAnswer(b"x" * size, MemoryBudget(size - 1), {})
    with pytest.raises(TooLargeError, match=r"about 65537 bytes.* 65536 \(max_buffered_bytes\)"):
        asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))


@pytest.mark.parametrize(("more", "pieces"), [(0, 2), (1, 3)])
def test_a_large_answer_goes_out_piece_by_piece(more: int, pieces: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    content = b"x" * (128 * 1024 + more)
    answer = LargeAnswer(content, MemoryBudget(len(content)), {"a": "b"})
    asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))
    start, *parts = sent
    assert start["status"] == 200
    assert {(b"a", b"b"), (b"content-length", b"%d" % len(content))} <= {*start["headers"]}
    assert b"".join(part["body"] for part in parts) == content
    assert [part["more_body"] for part in parts] == [True] * (pieces - 1) + [False]
