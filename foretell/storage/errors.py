"""Errors of object storage."""


class StorageError(Exception):
    """A place in object storage that cannot be read or written; the message names it."""
