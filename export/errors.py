"""Errors of the export."""


class ExportError(Exception):
    """A model that cannot be exported, or whose graph does not equal it."""
