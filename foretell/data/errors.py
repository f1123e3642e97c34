"""Errors of the data a model learns from."""


class DataError(ValueError):
    """A table that cannot be read, split or cut into windows; the message names the place."""
