from __future__ import annotations

import threading
from pathlib import Path

from foretell.service.metrics import Metrics
from foretell.service.telemetry.statistics import ModelStatistics, Statistics

KEY = ("m", "1")
SECOND = 1_000_000_000


def of(statistics: Statistics, *keys: tuple[str, str]) -> list[ModelStatistics]:
    return statistics.report(keys or (KEY,)).model_stats


def test_requests() -> None:
    statistics = Statistics()
    statistics.staged("decode", *KEY, 0.25)
    statistics.staged("queue", *KEY, 0.5)
    statistics.staged("run", *KEY, 0.125)
    statistics.staged("encode", *KEY, 0.75)
    statistics.answered(*KEY, 3, 2.0, succeeded=True)
    statistics.answered(*KEY, 5, 4.0, succeeded=False)
    (found,) = of(statistics)
    assert found.inference_count == 3
    assert found.last_inference > 1.7e12
    stats = found.inference_stats
    assert {name: (each.count, each.ns / SECOND) for name, each in stats} == {
        "success": (1, 2.0),
        "fail": (1, 4.0),
        "queue": (1, 0.5),
        "compute_input": (1, 0.25),
        "compute_infer": (1, 0.125),
        "compute_output": (1, 0.75),
        "cache_hit": (0, 0.0),
        "cache_miss": (0, 0.0),
    }


def test_batches_by_size() -> None:
    statistics = Statistics()
    observer = statistics.observer(*KEY)
    for windows, assemble, run in ((4, 0.5, 1.0), (1, 0.25, 0.5), (4, 1.0, 2.0)):
        observer.waited(9)
        observer.assembled(assemble)
        observer.ran(windows, run)
        observer.filled(1)
    observer.expired()
    observer.cancelled()
    (found,) = of(statistics)
    assert found.execution_count == 3
    assert [
        (each.batch_size, each.compute_input.ns / SECOND, each.compute_infer.ns / SECOND)
        for each in found.batch_stats
    ] == [(1, 0.25, 0.5), (4, 1.5, 3.0)]
    assert [each.compute_infer.count for each in found.batch_stats] == [1, 2]
    assert {each.compute_output.count for each in found.batch_stats} == {1, 2}


def test_threads_do_not_mix_their_batches() -> None:
    statistics = Statistics()
    observer = statistics.observer(*KEY)
    turn = threading.Barrier(2)

    def work(windows: int) -> None:
        turn.wait(30)
        observer.assembled(float(windows))
        turn.wait(30)
        for _ in range(200):
            observer.ran(windows, 1.0)

    threads = [threading.Thread(target=work, args=(windows,)) for windows in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (found,) = of(statistics)
    assert found.execution_count == 400
    assert [each.compute_input.ns / SECOND for each in found.batch_stats] == [200.0, 400.0]


def test_versions_are_counted_by_themselves() -> None:
    statistics = Statistics()
    statistics.observer(*KEY).ran(1, 1.0)
    statistics.observer("m", "2")
    one, two, three = of(statistics, KEY, ("m", "2"), ("other", "1"))
    assert (one.execution_count, two.execution_count, three.execution_count) == (1, 0, 0)
    assert (three.name, three.version, three.inference_stats.success.count) == ("other", "1", 0)


def test_a_report_does_not_change_any_more() -> None:
    statistics = Statistics()
    (before,) = of(statistics)
    statistics.observer(*KEY).ran(1, 1.0)
    assert before.execution_count == 0
    assert before.batch_stats == []


def test_processes_tell_each_other(tmp_path: Path) -> None:
    one, two = (Statistics(tmp_path / f"{slot}.json") for slot in range(2))
    for statistics, windows in ((one, 1), (two, 4)):
        observer = statistics.observer(*KEY)
        observer.assembled(0.5)
        observer.ran(windows, 1.0)
        observer.ran(2, 1.0)
        statistics.answered(*KEY, windows, 3.0, succeeded=True)
        statistics.publish()
        statistics.publish()
    two.observer("other", "1").ran(7, 1.0)
    reports = [of(statistics) for statistics in (one, two)]
    assert reports[0] == reports[1]
    (found,) = reports[0]
    assert (found.inference_count, found.execution_count) == (5, 4)
    assert [(each.batch_size, each.compute_infer.count) for each in found.batch_stats] == [
        *((1, 1), (2, 2), (4, 1))
    ]
    assert found.inference_stats.success.ns == 6 * SECOND
    # What is not published yet is its own alone.
    assert [of(each, ("other", "1"))[0].execution_count for each in (one, two)] == [0, 1]


def test_who_takes_the_place_of_another_goes_on(tmp_path: Path) -> None:
    first = Statistics(tmp_path / "0.json")
    first.observer(*KEY).ran(1, 1.0)
    first.publish()
    second = Statistics(tmp_path / "0.json")
    second.observer(*KEY).ran(1, 1.0)
    assert of(second)[0].execution_count == 2


def test_a_full_disk_costs_the_others_news_alone(tmp_path: Path) -> None:
    statistics = Statistics(tmp_path / "gone" / "0.json")
    statistics.observer(*KEY).ran(1, 1.0)
    statistics.publish()
    assert of(statistics)[0].execution_count == 1


def test_metrics_publish_them(tmp_path: Path) -> None:
    one, two = (Statistics(tmp_path / f"{slot}.json") for slot in range(2))
    metrics = Metrics(statistics=one)
    metrics.observer(*KEY).ran(1, 1.0)
    assert of(two)[0].execution_count == 0
    metrics.sample(ready=True)
    assert of(two)[0].execution_count == 1
