"""Fleets whose queues and batches one can work out by hand."""

from __future__ import annotations

from random import Random

import pytest

from bench.fleet.arrivals import poisson
from bench.fleet.balancing import any_one
from bench.fleet.hosts import Device, Host
from bench.fleet.outcome import Outcome
from bench.fleet.simulation import simulate

# A run of n windows takes 10 + n seconds.
DEVICE = Device(base=10, each=1, batch=4)


def first(loads: object) -> int:
    return 0


def alone(host: Host, times: list[float], **options: float) -> Outcome:
    return simulate([host], first, times, **options)


def test_one_request_takes_workers_device_and_network() -> None:
    host = Host(DEVICE, read=2, write=3)
    outcome = alone(host, [5.0], network=0.5)
    assert outcome == Outcome([0.5 + 2 + 11 + 3 + 0.5], 0, [1], 17.0)


def test_a_free_device_takes_what_waits() -> None:
    # The first runs alone until 11; what came meanwhile runs together until 11 + 13.
    outcome = alone(Host(DEVICE), [0.0, 1.0, 2.0, 3.0])
    assert outcome.batches == [1, 3]
    assert outcome.seconds == [11, 23, 22, 21]
    assert outcome.span == 24


def test_no_batch_is_larger_than_the_largest() -> None:
    outcome = alone(Host(DEVICE), [0.0, *[1.0] * 6])
    assert outcome.batches == [1, 4, 2]
    assert outcome.seconds == [11, *[24.0] * 4, *[36.0] * 2]


def test_free_devices_share_what_comes() -> None:
    outcome = alone(Host(DEVICE, devices=3), [0.0], windows=6)
    assert outcome.batches == [2, 2, 2]
    assert outcome.seconds == [12]


def test_a_large_request_is_split_and_answered_once() -> None:
    outcome = alone(Host(DEVICE), [0.0, 0.0], windows=6)
    assert outcome.batches == [4, 4, 4]
    assert outcome.seconds == [28, 42]


def test_who_finds_no_room_is_refused() -> None:
    # One runs, two wait.
    outcome = alone(Host(DEVICE, queue=2), [0.0, 1.0, 2.0, 3.0, 4.0])
    assert (outcome.refused, len(outcome.seconds)) == (2, 3)
    assert outcome.refused_share == 0.4


def test_room_is_counted_in_windows() -> None:
    outcome = alone(Host(DEVICE, queue=6), [0.0, 1.0, 2.0], windows=4)
    assert (outcome.refused, outcome.batches) == (1, [4, 4])


def test_a_worker_does_one_thing_at_a_time() -> None:
    fast = Device(base=0, each=0, batch=1)
    # Read until 2, 4; written until 7, 10.
    outcome = alone(Host(fast, read=2, write=3), [0.0, 0.0])
    assert outcome.seconds == [5 + 2, 10]
    assert alone(Host(fast, workers=2, read=2, write=3), [0.0, 0.0]).seconds == [5, 5]


def test_what_was_sent_counts_before_it_arrives() -> None:
    seen = []

    def choose(loads: list[int]) -> int:
        seen.append(list(loads))
        return len(seen) % 2

    simulate([Host(DEVICE)] * 2, choose, [0.0, 1.0, 2.0, 30.0], network=5.0)
    assert seen == [[0, 0], [0, 1], [1, 1], [0, 1]]


def test_refused_requests_are_no_load() -> None:
    seen = []

    def choose(loads: list[int]) -> int:
        seen.extend(loads)
        return 0

    simulate([Host(DEVICE, queue=1)], choose, [0.0, 1.0, 2.0, 3.0])
    assert seen == [0, 1, 2, 2]


def test_a_queue_of_chance_is_as_long_as_theory_says() -> None:
    """M/D/1: the mean wait is load / (2 * (1 - load)) services."""
    host = Host(Device(base=1, each=0, batch=1), queue=10**9)
    outcome = alone(host, poisson(0.7, 40_000, Random(1)))
    mean = sum(outcome.seconds) / len(outcome.seconds)
    assert mean == pytest.approx(1 + 0.7 / (2 * 0.3), rel=0.03)


def test_nothing_is_lost() -> None:
    hosts = [Host(DEVICE, devices=2, workers=2, read=0.1, write=0.2, queue=9)] * 3
    times = poisson(1.5, 2000, Random(2))
    outcome = simulate(hosts, any_one(Random(3)), times, windows=3, network=0.01)
    assert len(outcome.seconds) + outcome.refused == 2000
    assert sum(outcome.batches) == 3 * len(outcome.seconds)
    assert outcome.refused
    assert max(outcome.batches) == 4
    # HTTP worker, device and network at the least.
    assert min(outcome.seconds) == pytest.approx(0.02 + 0.3 + 12)
