"""Messages of routes in the words of the tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Options of a request are arguments of their own.
_OPTIONS = re.compile(r"\boptions\.(?=[a-z])")
# Most characters of a name in a text.
_SHOWN = 64


def reworded(text: str) -> str:
    """A description or a message, with the names of tools and of their arguments."""
    text = text.replace("`GET /models`", "list_models").replace("GET /models", "list_models")
    return _OPTIONS.sub("", text)


def translated(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error or a warning of a route, with its place in the arguments of the tool."""
    found = {**error, "message": reworded(error["message"])}
    if param := error.get("param"):
        found["param"] = None if param == "options" else param.removeprefix("options.")
    return found


def place(error: Mapping[str, Any]) -> str:
    """The place before a message, if there is one."""
    return f"{error['param']}: " if error.get("param") else ""


def short(name: str) -> str:
    """A name for a text; of a long one, the beginning."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
