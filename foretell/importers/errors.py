"""Errors of imports."""

from pydantic import ValidationError


class ImporterError(ValueError):
    """A file cannot be imported as requested; the message has the reason and the remedy."""


def explained(error: Exception) -> str:
    """The message of an error about arguments, field by field."""
    if isinstance(error, TypeError):
        return f"an argument is of another type: {error}"
    if not isinstance(error, ValidationError):
        return str(error)
    problems = []
    for each in error.errors():
        place = ".".join(map(str, each["loc"]))
        what = each["msg"].removeprefix("Value error, ")
        if place and each["type"] != "missing":
            place += f" {each['input']!r}"
        problems.append(f"{place}: {what}" if place else what)
    return f"its arguments do not fit together: {'; '.join(problems)}"
