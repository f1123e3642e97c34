from __future__ import annotations

from concurrent.futures import wait

import pytest

from foretell.service.batching.call import Call
from foretell.service.errors import DeviceLostError, NotReadyError


def test_is_made_with_the_workers_index() -> None:
    made: list[int] = []
    call = Call(made.append)
    assert call.make(3) is None
    assert made == [3]
    assert call.done()
    assert call.exception(0) is None


@pytest.mark.parametrize("error", [ValueError(), SystemExit()])
def test_keeps_what_was_raised(error: BaseException) -> None:
    def fail(worker: int) -> None:
        raise error

    call = Call(fail)
    assert call.make(0) is None
    assert call.exception(0) is error


def test_says_that_the_workers_device_is_lost() -> None:
    def fail(worker: int) -> None:
        raise DeviceLostError("GPU 1 is lost")

    call = Call(fail)
    assert call.make(1) == "GPU 1 is lost"
    with pytest.raises(DeviceLostError):
        call.result(0)


def test_one_that_was_cancelled_is_not_made() -> None:
    made: list[int] = []
    for end in (lambda call: call.make(0), lambda call: call.fail(NotReadyError("late"))):
        call = Call(made.append)
        assert call.cancel()
        end(call)
        assert wait([call], timeout=30).done
    assert made == []


def test_fails_if_it_is_never_made() -> None:
    call = Call(lambda worker: None)
    call.fail(NotReadyError("stopped"))
    with pytest.raises(NotReadyError, match="stopped"):
        call.result(0)
