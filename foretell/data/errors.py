"""Errors of training data."""


class DataError(ValueError):
    """A table cannot be read, split or cut into windows; the message names the place."""


class MissingFileError(DataError):
    """The file that a model learnt from does not exist."""
