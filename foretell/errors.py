"""Errors that commands print as one line."""

from __future__ import annotations


class RefusedError(ValueError):
    """A command cannot run with this input; the message gives the reason."""
