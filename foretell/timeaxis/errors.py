"""Errors of times and frequencies."""


class TimestampError(ValueError):
    """A timestamp that is not ISO 8601 or lies outside the years 1 to 9999."""


class RowError(TimestampError):
    """One timestamp of a series that means no moment; `row` counts from the first."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class FrequencyError(ValueError):
    """A text that names no frequency, or timestamps that follow none."""
