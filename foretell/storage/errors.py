"""Errors of object storage."""


class StorageError(Exception):
    """Object storage cannot be read or written; the message names the place."""
