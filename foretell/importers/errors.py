"""Errors of adopting a checkpoint."""

from pydantic import ValidationError


class ImporterError(ValueError):
    """A file that cannot be adopted as requested; the message says what is wrong and what to do."""


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
