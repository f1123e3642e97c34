from __future__ import annotations

import os
import signal
import sys
from multiprocessing import forkserver
from multiprocessing.connection import Connection

import pytest

from foretell.batch import processes


def _tell(pipe: Connection) -> None:
    pipe.send([name in sys.modules for name in ("foretell.batch.parts", "onnxruntime")])


def test_what_a_worker_needs_is_there_when_it_is_forked() -> None:
    context = processes.begin()
    assert context.get_start_method() == "forkserver"
    ours, theirs = context.Pipe()
    child = context.Process(target=_tell, args=(theirs,))
    child.start()
    assert ours.poll(60)
    # onnxruntime and the GPUs that it finds are each worker's own.
    assert ours.recv() == [True, False]
    child.join(60)


def test_where_systems_do_not_fork_well_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert processes.begin().get_start_method() == "spawn"


def test_nor_where_its_socket_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "ensure_running", refuse)
    assert processes.begin().get_start_method() == "spawn"


def test_interrupts_are_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        forkserver, "ensure_running", lambda: seen.append(signal.pthread_sigmask(0, ()))
    )
    processes.begin()
    assert seen == [{signal.SIGINT}]
    assert signal.SIGINT not in signal.pthread_sigmask(0, ())


@pytest.mark.parametrize("given", [None, "5"])
def test_the_environment_stays(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    names = ("MIMALLOC_PURGE_DELAY", "PYTHONPATH", "PYTHONSAFEPATH")
    for name in names:
        monkeypatch.delenv(name, raising=False)
        if given:
            monkeypatch.setenv(name, given)
    processes.begin()
    assert [os.environ.get(name) for name in names] == [given or "10000", given, given]
