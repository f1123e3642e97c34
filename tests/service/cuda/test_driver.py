from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.service.cuda.device import gpu_count


def driver(monkeypatch: pytest.MonkeyPatch, count: int, *, init: int = 0) -> None:
    def set_count(place: Any) -> int:
        place._obj.value = count
        return 0

    library = SimpleNamespace(cuInit=lambda flags: init, cuDeviceGetCount=set_count)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)


def test_without_a_driver() -> None:
    assert gpu_count("libnothing.so.1") == 0


def test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, 4)
    assert gpu_count() == 4


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, 4, init=100)
    assert gpu_count() == 0
