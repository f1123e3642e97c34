"""Errors of signatures."""


class SigningError(Exception):
    """A key or certificate cannot be used; the message names its file."""
