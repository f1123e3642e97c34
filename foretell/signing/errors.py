"""Errors of signatures."""


class SigningError(Exception):
    """A key cannot be used; the message names its file."""
