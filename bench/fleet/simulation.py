"""Discrete events: requests, HTTP workers, queues and batches of a fleet.

Batches are put together as `service/engine/scheduler.py` does it: a device that is free takes what
waits, the oldest first, up to its largest batch, and leaves their share to others that are free. Of
the service's other rules (small requests before large ones, several models, deadlines) there is
nothing here. No refused client tries again. HTTP workers take requests in their order; a balancer
costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import ceil

from bench.fleet.balancing import Choice
from bench.fleet.hosts import Host
from bench.fleet.outcome import Outcome


@dataclass
class _Request:
    """A request.

    Attributes:
        sent: When.
        windows: How many are in no batch yet.
        left: How many have no forecast yet.
    """

    sent: float
    windows: int
    left: int


class _Agenda:
    """What happens next, by time; at the same time what was planned first."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    def add(self, time: float, event: Callable[[float], None]) -> None:
        heappush(self._events, (time, next(self._order), event))

    def run(self) -> None:
        while self._events:
            time, _, event = heappop(self._events)
            event(time)


class _Server:
    """A host at work.

    Attributes:
        load: Requests that were sent to it and have no answer.
    """

    def __init__(self, host: Host, agenda: _Agenda, outcome: Outcome, network: float) -> None:
        self.load = 0
        self._host = host
        self._agenda = agenda
        self._outcome = outcome
        self._network = network
        # When each HTTP worker has done its work so far.
        self._workers = [0.0] * host.workers
        self._free = host.devices
        self._waiting: deque[_Request] = deque()
        self._windows = 0

    def send(self, request: _Request) -> None:
        """A request is on its way."""
        self.load += 1
        self._agenda.add(
            request.sent + self._network, lambda now: self._at_worker(now, request, self._admit)
        )

    def _at_worker(
        self, now: float, request: _Request, then: Callable[[float, _Request], None]
    ) -> None:
        seconds = self._host.write if then == self._answer else self._host.read
        worker = min(range(len(self._workers)), key=self._workers.__getitem__)
        self._workers[worker] = max(now, self._workers[worker]) + seconds
        self._agenda.add(self._workers[worker], lambda end: then(end, request))

    def _admit(self, now: float, request: _Request) -> None:
        if self._windows + request.windows > self._host.queue:
            self._agenda.add(now + self._network, self._refused)
            return
        self._waiting.append(request)
        self._windows += request.windows
        self._start(now)

    def _start(self, now: float) -> None:
        """Give what waits to the devices that are free."""
        while self._free and self._windows:
            share = ceil(self._windows / self._free)
            self._free -= 1
            batch = self._take(min(share, self._host.device.batch))
            windows = sum(taken for _, taken in batch)
            self._outcome.batches.append(windows)
            end = now + self._host.device.seconds(windows)
            self._agenda.add(end, lambda time, batch=batch: self._ran(time, batch))  # type: ignore[misc]

    def _take(self, most: int) -> list[tuple[_Request, int]]:
        batch = []
        while most and self._waiting:
            request = self._waiting[0]
            taken = min(most, request.windows)
            request.windows -= taken
            most -= taken
            self._windows -= taken
            batch.append((request, taken))
            if not request.windows:
                self._waiting.popleft()
        return batch

    def _ran(self, now: float, batch: Sequence[tuple[_Request, int]]) -> None:
        self._free += 1
        for request, taken in batch:
            request.left -= taken
            if not request.left:
                self._at_worker(now, request, self._answer)
        self._start(now)

    def _answer(self, now: float, request: _Request) -> None:
        self._agenda.add(now + self._network, lambda end: self._received(end, request))

    def _received(self, now: float, request: _Request) -> None:
        self.load -= 1
        self._outcome.seconds.append(now - request.sent)
        self._outcome.span = now

    def _refused(self, _: float) -> None:
        self.load -= 1
        self._outcome.refused += 1


def simulate(
    hosts: Sequence[Host],
    choose: Choice,
    times: Sequence[float],
    *,
    windows: int = 1,
    network: float = 0.0,
) -> Outcome:
    """Send requests to a fleet.

    Args:
        hosts: The fleet.
        choose: To which of them each request goes.
        times: When they are sent, in seconds, in order.
        windows: Of each request.
        network: Seconds to a host, and back.

    Returns:
        What came of them; its span is from the first of the times.
    """
    agenda, outcome = _Agenda(), Outcome()
    servers = [_Server(host, agenda, outcome, network) for host in hosts]

    def send(now: float) -> None:
        index = choose([server.load for server in servers])
        servers[index].send(_Request(now, windows, windows))

    for time in times:
        agenda.add(time, send)
    agenda.run()
    outcome.span -= times[0] if outcome.seconds else 0.0
    return outcome
