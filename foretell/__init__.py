"""From a trained forecasting transformer to a verified ONNX service."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]

# onnxruntime reads this when it is imported, and sends telemetry to its maker unless it is set.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> object:
    # Imported on use: a server does not need the client's imports.
    if name in __all__:
        return getattr(import_module("foretell.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
