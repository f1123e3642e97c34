"""Errors that commands print as one line."""

from __future__ import annotations


class RefusedError(ValueError):
    """A command cannot do what it was called for; the message says why."""
