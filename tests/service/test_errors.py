"""Errors of the service, and their messages for invalid values."""

from __future__ import annotations

import asyncio
import traceback
import weakref
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from foretell.bundle.nearness import Index
from foretell.service import errors
from foretell.service.errors import (
    InvalidInputError,
    ServiceError,
    error_body,
    error_object,
    kept,
    let_go,
)
from foretell.service.validation import shown, validate
from tests.service.loops import on_loop


def all_errors(kind: type[errors.ServiceError] = errors.ServiceError) -> list[Any]:
    below = [all_errors(one) for one in kind.__subclasses__()]
    return [kind, *chain.from_iterable(below)]


def test_errors_have_types_of_their_own_and_statuses_of_http() -> None:
    kinds = all_errors()
    assert len({kind.type for kind in kinds}) == len(kinds)
    for kind in kinds:
        # Only nginx's status 499 is not registered.
        assert kind.status == 499 or HTTPStatus(kind.status) >= 400


class OutOfMemoryError(errors.ModelFailedError):
    type = "out_of_memory"


@pytest.mark.parametrize(
    ("error", "code", "headers"),
    [
        (errors.QueueFullError("full", retry_after=7), "429", {"Retry-After": "7"}),
        (errors.BuffersFullError("full"), "503", {"Retry-After": "1"}),
        (errors.NotReadyError("not loaded"), "503", {"Retry-After": "1"}),
        (errors.EngineLostError("gone"), "503", {"Retry-After": "1"}),
        # As an error of its base class.
        (OutOfMemoryError("no memory is left"), "503", {"Retry-After": "1"}),
        (errors.UnauthorizedError("no key"), "401", {"WWW-Authenticate": "Bearer"}),
        (errors.ForbiddenError("no"), "403", {}),
    ],
)
def test_status_and_headers(error: errors.ServiceError, code: str, headers: dict[str, str]) -> None:
    assert (error_object(error)["code"], error.headers) == (code, headers)


@pytest.mark.parametrize(
    ("known", "name", "message"),
    [
        (
            {f"model-{number:02}" for number in range(30)},
            "x" * 1000,
            f"no model '{'x' * 64}'; served: "
            + ", ".join(f"model-{number:02}" for number in range(20))
            + " and 10 more",
        ),
        *(
            ({"sea", "wind"}, name, f"no model {name!r}; served: sea, wind{meant}")
            for name, meant in [
                *((name, "; did you mean 'sea'?") for name in ("see", "Sea", "SEA")),
                ("WIND", "; did you mean 'wind'?"),
                ("moon", ""),
            ]
        ),
    ],
)
def test_unknown_model_names_what_is_served(known: set[str], name: str, message: str) -> None:
    assert errors.UnknownModelError.among(name, Index(known), "served").message == message


def test_error_object_and_text_of_the_inference_protocol() -> None:
    error = error_object(errors.InvalidInputError("expected this, got that", param="inputs[0]"))
    assert error == {
        "code": "422",
        "message": "expected this, got that",
        "param": "inputs[0]",
        "type": "invalid_input",
    }
    soon = error_object(errors.NotReadyError("soon"))
    for path in ("/v2", "/v2/models/nope", "/v2/"):
        assert error_body(path, error) == {"error": "inputs[0]: expected this, got that"}
        assert error_body(path, soon) == {"error": "soon"}
    for path in ("/forecast", "/v2x", "/", ""):
        assert error_body(path, error) == {"error": error}


class Body:
    """An object that a request holds."""


def raised() -> tuple[ServiceError, list[weakref.ref[Body]]]:
    """An error with a cause, and the objects that their frames hold."""
    held: list[weakref.ref[Body]] = []

    def fail(body: Body) -> None:
        held.append(weakref.ref(body))
        raise ValueError("wrong")

    def read() -> None:
        own = Body()
        held.append(weakref.ref(own))
        try:
            fail(Body())
        except ValueError as error:
            raise errors.ModelFailedError("failed") from error

    try:
        read()
    except ServiceError as error:
        return error, held
    raise AssertionError


def test_let_go_frees_frames_and_keeps_the_traceback() -> None:
    error, held = raised()
    assert all(each() is not None for each in held)
    let_go(error)
    assert [each() for each in held] == [None, None]
    printed = "".join(traceback.format_exception(error))
    assert "in fail" in printed
    assert "in read" in printed


def test_let_go_frees_a_suppressed_context() -> None:
    try:
        try:
            raise ValueError(Body())
        except ValueError:
            raise errors.InvalidInputError("wrong") from None
    except ServiceError as found:
        error = found
    let_go(error)
    assert error.__context__ is None


def test_errors_that_cause_each_other_are_freed_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    let_go(first)
    assert (first.__cause__, second.__cause__) == (second, first)


def test_coroutine_that_caught_an_error_still_works() -> None:
    caught: list[ValueError] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")

    async def go_on(event: asyncio.Event) -> str:
        try:
            await fail()
        except ValueError as error:
            caught.append(error)
        await event.wait()
        return "done"

    async def scene() -> str:
        event = asyncio.Event()
        waiting = asyncio.create_task(go_on(event))
        while not caught:
            await asyncio.sleep(0)
        let_go(caught[0])
        event.set()
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(scene()) == "done"


@pytest.mark.parametrize("is_cancelled", [False, True])
@on_loop
async def test_failed_coroutines_keep_no_references(is_cancelled: bool) -> None:
    held: list[weakref.ref[Body]] = []

    async def work() -> None:
        own = Body()
        held.append(weakref.ref(own))
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
        raise ValueError("wrong")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    if is_cancelled:
        task.cancel()
    await asyncio.wait([task])
    with pytest.raises((asyncio.CancelledError, ValueError)) as ended:
        task.result()
    let_go(ended.value)
    assert ended.tb is not None
    assert held[0]() is None


def test_kept_error_has_no_frames() -> None:
    error, held = raised()
    assert kept(error) is error
    assert (error.__traceback__, error.__context__) == (None, None)
    assert isinstance(error.__cause__, ValueError)
    assert len(held) == 2


class Inner(BaseModel):
    numbers: list[int]


class Outer(BaseModel):
    inner: list[Inner]
    name: str = Field(default="")
    few: Annotated[list[int], Field(min_length=2)] = [1, 2]
    strict: Annotated[int, Field(strict=True, ge=1)] = 1
    choice: Literal["all", "mean"] = "all"
    text: Annotated[str, Field(pattern="a")] = "a"


@pytest.mark.parametrize(
    ("value", "place", "param", "message"),
    [
        ({"inner": [{"numbers": [1, "x"]}]}, "", "inner[0].numbers[1]", "got the string 'x'"),
        (
            {"inner": [{"numbers": [1, "x"]}]},
            "a[2]",
            "a[2].inner[0].numbers[1]",
            "a whole number",
        ),
        ({"inner": [{}]}, "", "inner[0].numbers", "required, but missing"),
        ({"inner": [5]}, "", "inner[0]", "expected an object, got 5"),
        ([1, 2], "", None, "expected an object, got a list of 2"),
        ({"inner": [], "name": 5}, "", "name", "expected a string, got 5"),
        ({"inner": [], "few": [1]}, "", "few", "expected a list of at least 2, got a list of 1"),
        ({"inner": {}}, "", "inner", "expected a list, got an object"),
        ({"inner": [], "strict": 0}, "", "strict", "expected at least 1, got 0"),
        ({"inner": [], "strict": "1"}, "", "strict", "expected a whole number, got the string"),
        ({"inner": [], "choice": "one"}, "", "choice", "expected 'all' or 'mean', got the string"),
        ({"inner": [], "text": "b"}, "", "text", "match pattern 'a', got the string 'b'"),
    ],
)
def test_validation_names_the_place(
    value: object, place: str, param: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        validate(Outer, value, place)
    assert error.value.param == param


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ("x", "the string 'x'"),
        ("x" * 100, f"the string {'x' * 60!r}…"),
        (10**80, "a number of over 70 digits"),
        ([], "a list of 0"),
        ({}, "an object"),
    ],
)
def test_values_in_messages_are_short(value: object, text: str) -> None:
    assert shown(value) == text
