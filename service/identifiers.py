"""Names for what has none: they tell requests and answers apart, and keep nothing secret."""

from __future__ import annotations

import random


def new_identifier() -> str:
    """128 random bits as 32 hexadecimal digits.

    Asking the system for them would let other threads have the interpreter in the middle of every
    request.
    """
    return f"{random.getrandbits(128):032x}"
