"""What a fleet is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """What runs batches, one at a time; a run takes `base + each * windows` seconds.

    Attributes:
        base: Seconds of a run, however small.
        each: Seconds more for each window.
        batch: Most windows in a run.
    """

    base: float
    each: float
    batch: int

    def seconds(self, windows: int) -> float:
        """How long a run takes."""
        return self.base + self.each * windows

    @property
    def rate(self) -> float:
        """Most windows a second."""
        return self.batch / self.seconds(self.batch)


@dataclass(frozen=True)
class Host:
    """A server: HTTP workers in front of a queue, from which devices take batches.

    Attributes:
        device: What each of its devices is.
        devices: How many it has.
        workers: Processes that read requests and write answers, one at a time each.
        read: Seconds of an HTTP worker for a request.
        write: Seconds of an HTTP worker for an answer.
        queue: Most windows that may wait; who finds no room is refused.
    """

    device: Device
    devices: int = 1
    workers: int = 1
    read: float = 0.0
    write: float = 0.0
    queue: int = 2048

    @property
    def rate(self) -> float:
        """Most requests of one window a second, of the HTTP workers or the devices."""
        devices = self.devices * self.device.rate
        worker = self.read + self.write
        return min(devices, self.workers / worker) if worker else devices
