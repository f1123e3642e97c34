"""Errors of times and frequencies."""


class TimestampError(ValueError):
    """A timestamp is not ISO 8601 or lies outside the years 1 to 9999."""


class RowError(TimestampError):
    """A timestamp of a series does not exist or is ambiguous; `row` is its place, from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class FrequencyError(ValueError):
    """A text is not the name of a frequency, or timestamps do not have one."""
