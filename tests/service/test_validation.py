from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from foretell.service.errors import InvalidInputError
from foretell.service.validation import shown, validate


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
def test_names_the_place(value: object, place: str, param: str | None, message: str) -> None:
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
