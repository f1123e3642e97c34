from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

Once = Callable[[str, Callable[[Path], object]], Path]

# `--hypothesis-profile` chooses another.
settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=2000)
settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def light_torch():
    """One thread and cheap traces, where tests have imported torch.

    Small models gain nothing from threads, and lose much where cores are shared; most of the time
    of the tests is torch tracing models.
    """
    if "torch" in sys.modules:
        import torch

        from tests.tracing import trace_cheaply

        torch.set_num_threads(1)
        trace_cheaply()


@pytest.fixture
def float64():
    """Makes modules, and the constants of their rewrites, in float64."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """Does what takes long once for all processes of the tests, in a folder that they share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)

    def do(what: str, make: Callable[[Path], object]) -> Path:
        done = folder / f".{what}"
        with (folder / f".{what}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return do
