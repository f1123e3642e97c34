from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from foretell.service.versions.inflight import InFlight


def test_waits_for_those_that_have_begun_and_not_for_later_ones() -> None:
    requests = InFlight()
    end, began = threading.Event(), threading.Barrier(2)

    def request() -> None:
        with requests.one():
            began.wait(30)
            assert end.wait(30)

    with ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(request)
        began.wait(30)
        assert not requests.settle(0.01)
        settled = pool.submit(requests.settle, 30)
        with requests.one():
            assert not settled.done()
            end.set()
            assert settled.result(30)
        earlier.result(30)


def test_nothing_to_wait_for() -> None:
    requests = InFlight()
    with requests.one():
        pass
    assert requests.settle(0)
