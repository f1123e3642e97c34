from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from foretell.service.engine.run import Run, own_error
from foretell.service.errors import ModelFailedError, NotReadyError, QueueFullError


def cancel(run: Run) -> None:
    run.fail(CancelledError())


def make() -> Run:
    return Run(cancel, "g", {"x": np.zeros(1)})


def test_first_outcome_wins() -> None:
    succeeded, failed, heard = make(), make(), []
    for run in (succeeded, failed):
        run.add_done_callback(heard.append)
    succeeded.succeed({"y": np.zeros(1)})
    succeeded.fail(NotReadyError("not now"))
    failed.fail(NotReadyError("not now"))
    failed.succeed({})
    assert not succeeded.cancel()
    assert heard == [succeeded, failed]
    assert "y" in succeeded.result()
    with pytest.raises(NotReadyError):
        failed.result()


def test_raised_error_leaves_no_reference_cycle() -> None:
    failing = make()
    failing.fail(NotReadyError("not now"))
    reference = weakref.ref(failing)
    gc.disable()
    try:
        with suppress(NotReadyError):
            failing.result()
        del failing
        assert reference() is None
    finally:
        gc.enable()


def test_result_times_out() -> None:
    run = make()
    with pytest.raises(TimeoutError):
        run.result(0.001)
    assert not run.done()
    run.succeed({})
    assert run.result(0) == {}


def test_callbacks_are_called_once_and_in_order(caplog: pytest.LogCaptureFixture) -> None:
    run = make()
    heard: list[object] = []

    def fail(_: Run) -> None:
        raise MemoryError

    for callback in (lambda run: heard.append((1, run)), fail, lambda _: heard.append(2)):
        run.add_done_callback(callback)
    assert heard == []
    run.succeed({})
    assert heard == [(1, run), 2]
    assert "a callback of a run failed" in caplog.text
    run.add_done_callback(lambda _: heard.append(3))
    run.notify()
    assert heard[2:] == [3]


def test_callbacks_added_while_a_run_ends_are_called() -> None:
    for _ in range(300):
        run = make()
        heard: list[int] = []
        ending = threading.Thread(target=run.succeed, args=({},))
        ending.start()
        for number in range(20):
            run.add_done_callback(partial(_hear, heard, number))
        ending.join(30)
        assert sorted(heard) == list(range(20))


def _hear(heard: list[int], number: int, _: Run) -> None:
    heard.append(number)


@pytest.mark.parametrize(
    "error", [NotReadyError("not now", param="model"), QueueFullError("full", retry_after=7)]
)
def test_errors_of_the_service_are_copied_with_all_members(error: Exception) -> None:
    error.__cause__ = OSError("gone")
    own = own_error(error)
    assert own is not error
    assert type(own) is type(error)
    assert (str(own), vars(own), own.__cause__) == (str(error), vars(error), error.__cause__)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_other_errors_become_model_failed(error: BaseException) -> None:
    own = own_error(error)
    assert isinstance(own, ModelFailedError)
    assert own.__cause__ is error
