"""Implementations of others, which ours are compared with."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType


def published(name: str) -> ModuleType:
    """A module of theirs; what they do at import is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)
