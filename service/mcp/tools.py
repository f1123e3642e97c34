"""A tool: its arguments, and the function that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from foretell.bundle.layout import NAME, VERSION
from foretell.bundle.nearness import suggestion
from foretell.service.errors import InvalidInputError, UnknownModelError
from foretell.service.mcp.caller import Caller
from foretell.service.mcp.results import Fields, Result
from foretell.service.mcp.schemas import Schema

# Most characters of a name in a message.
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: Its name.
        title: Its name for people.
        description: Its use, for agents.
        schema: JSON schema of its arguments.
        run: Runs it for a client, with the given arguments.
        reads_only: Whether it changes nothing on the server.
    """

    name: str
    title: str
    description: str
    schema: Schema
    run: Callable[[Caller, Fields], Awaitable[Result]]
    reads_only: bool = True

    async def __call__(self, caller: Caller, given: Fields) -> Result:
        """Run it; raises InvalidInputError for unknown or missing arguments."""
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
        return await self.run(caller, present)


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
