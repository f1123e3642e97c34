"""Errors of adopting a checkpoint."""


class ImporterError(ValueError):
    """A file that cannot be adopted as asked; the message says what is wrong and what to do."""
