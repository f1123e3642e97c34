"""A tool: its arguments, and the function that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

from foretell.bundle.layout import NAME, VERSION
from foretell.bundle.nearness import suggestion
from foretell.service.errors import InvalidInputError, TooLargeError, UnknownModelError
from foretell.service.mcp.caller import Caller
from foretell.service.mcp.exchange import AnswerTooLargeError
from foretell.service.mcp.results import Fields
from foretell.service.mcp.schemas import Schema

# Most characters of a name in a message.
_SHOWN = 64
# Bytes of the largest structured content, and of the largest text of a result.
MOST_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool.

    Attributes:
        fields: Its structured content.
        text: Text of the same, for clients that show no other.
    """

    fields: Fields
    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: Its name.
        title: Its name for people.
        description: Its use, for agents.
        schema: JSON schema of its arguments.
        run: Runs it for a client, with the given arguments; returns the structured content.
        text: Makes a text of the structured content.
        remedy: Advice if the result is too large.
        reads_only: Whether it changes nothing on the server.
    """

    name: str
    title: str
    description: str
    schema: Schema
    run: Callable[[Caller, Fields], Awaitable[Fields]]
    text: Callable[[Fields], str]
    remedy: str
    reads_only: bool = True

    async def __call__(self, caller: Caller, given: Fields) -> Result:
        """Run it.

        Raises:
            InvalidInputError: an argument is unknown or missing, or the result is too large.
            TooLargeError: the answer of the route is too large.
        """
        known = [*self.schema["properties"]]
        for name in given:
            if name not in known:
                message = f"unknown; {suggestion(name, known)}"
                raise InvalidInputError(message, param=name[:_SHOWN])
        # An argument that is null is absent.
        present = {name: value for name, value in given.items() if value is not None}
        for name in self.schema["required"]:
            if name not in present:
                raise InvalidInputError("required, but missing", param=name)
        try:
            fields = await self.run(caller, present)
        except AnswerTooLargeError as error:
            raise TooLargeError(f"{error.message}; {self.remedy}") from None
        self._check(orjson.dumps(fields))
        text = self.text(fields)
        self._check(text.encode())
        return Result(fields, text)

    def _check(self, content: bytes) -> None:
        if len(content) > MOST_BYTES:
            raise InvalidInputError(
                f"the result has {len(content):,} bytes, and may have {MOST_BYTES:,}; {self.remedy}"
            )


def model_and_version(given: Fields) -> tuple[str, str]:
    """The argument `model`, which is a name or `name@version`; the version may be empty.

    Raises:
        InvalidInputError: it is not a string.
        UnknownModelError: no model can have the name.
    """
    reference = given["model"]
    if not isinstance(reference, str):
        raise InvalidInputError("expected a string", param="model")
    name, at, version = reference.partition("@")
    if not NAME.fullmatch(name) or (at and not VERSION.fullmatch(version)):
        message = f"no model {reference[:_SHOWN]!r}; list_models has the names"
        raise UnknownModelError(message, param="model")
    return name, version
