"""What commands refuse."""

from __future__ import annotations


class RefusedError(ValueError):
    """What was asked for cannot be done; the message says why."""
