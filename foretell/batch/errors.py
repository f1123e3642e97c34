"""Errors of forecasts of whole tables."""


class BatchError(ValueError):
    """A table cannot be forecast, or not here; the message names the place."""
