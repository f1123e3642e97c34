"""Errors of the export."""


class ExportError(Exception):
    """A model that cannot be exported, or whose graph does not equal it."""


class UncalibratedError(ExportError):
    """A model without errors to calibrate quantiles on; the message gives the reason."""
