from __future__ import annotations

import threading

import orjson
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.counts import Counts, Family

FAMILIES = {
    "calls_total": Family("Calls.", ("kind",)),
    "seconds": Family("How long.", ("kind",), (0.1, 1.0)),
}


def lines(counts: Counts) -> list[str]:
    text = b"".join(counts.write()).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_prometheus_reads_what_was_counted() -> None:
    counts = Counts(FAMILIES)
    counts.add("calls_total", "good")
    counts.add("calls_total", "good", amount=2)
    counts.add("calls_total", "bad", amount=0)
    # A value at a bound is within it.
    for value in (0.05, 0.1, 0.5, 7.0):
        counts.observe((("seconds", "good"), value))
    assert lines(counts) == [
        'calls_total{kind="good"} 3.0',
        'calls_total{kind="bad"} 0.0',
        'seconds_bucket{kind="good",le="0.1"} 2.0',
        'seconds_bucket{kind="good",le="1.0"} 3.0',
        'seconds_bucket{kind="good",le="+Inf"} 4.0',
        'seconds_count{kind="good"} 4.0',
        'seconds_sum{kind="good"} 7.65',
    ]


def test_labels_are_quoted() -> None:
    counts = Counts(FAMILIES)
    kinds = ["", 'a "word"', "two\nlines", "a\\b", "\\n", "{}", "é", "le"]
    for kind in kinds:
        counts.add("calls_total", kind)
        counts.observe((("seconds", kind), 0.5))
    text = b"".join(counts.write()).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert [sample.labels["kind"] for sample in found["calls"].samples] == kinds
    assert {sample.labels["kind"] for sample in found["seconds"].samples} == {*kinds}
    assert (found["calls"].type, found["seconds"].type) == ("counter", "histogram")
    assert (found["calls"].documentation, found["seconds"].documentation) == ("Calls.", "How long.")


def test_thousands_are_written_in_small_pieces() -> None:
    """Nobody counts, and no request is answered, while one of them is written."""
    counts = Counts(FAMILIES)
    for kind in range(2000):
        counts.observe((("seconds", str(kind)), 0.5), also={("calls_total", str(kind)): 1.0})
    pieces = [*counts.write()]
    assert len(pieces) > 4000
    assert max(map(len, pieces)) < 1000


def test_only_versions_that_are_there_are_kept() -> None:
    families = {"runs_total": Family("Runs.", ("model", "version")), **FAMILIES}
    counts = Counts(families)
    for name, version in (("m", "1"), ("m", "11"), ("n", "1"), ("", "")):
        counts.add("runs_total", name, version)
    counts.add("calls_total", "good")
    counts.keep({("m", "11"), ("never", "seen")})
    assert counts.counters() == {
        ("runs_total", "m", "11"): 1,
        ("runs_total", "", ""): 1,
        ("calls_total", "good"): 1,
    }


def test_many_histograms_are_read_whole() -> None:
    counts = Counts(FAMILIES)
    kinds = [str(number) for number in range(1000)]
    for kind in kinds:
        counts.observe((("seconds", kind), 0.5))
    assert dict(counts.histograms()) == {("seconds", kind): [0.5, 0.0, 1.0, 0.0] for kind in kinds}


def test_counting_goes_on_while_histograms_are_read() -> None:
    counts = Counts(FAMILIES)
    for kind in range(1000):
        counts.observe((("seconds", str(kind)), 0.5))
    reading = counts.histograms()
    next(reading)
    # It would wait for ever if the lock were held.
    counter = threading.Thread(target=counts.add, args=("calls_total", "good"), daemon=True)
    counter.start()
    counter.join(30)
    assert counts.counters() == {("calls_total", "good"): 1}


def test_counts_of_http_workers_add_up() -> None:
    engine, one, two = (Counts(FAMILIES) for _ in range(3))
    for worker, times in ((one, 1), (two, 2)):
        for _ in range(times):
            worker.add("calls_total", "good")
            worker.observe((("seconds", "good"), 0.5))
        # As they are sent.
        engine.merge(orjson.loads(orjson.dumps(worker.take())))
    one.add("calls_total", "bad")
    engine.merge(one.take())
    engine.merge(one.take())
    assert engine.counters() == {("calls_total", "good"): 3, ("calls_total", "bad"): 1}
    assert dict(engine.histograms()) == {("seconds", "good"): [1.5, 0.0, 3.0, 0.0]}
    assert 'seconds_bucket{kind="good",le="0.1"} 0.0' in lines(engine)
    assert 'seconds_bucket{kind="good",le="1.0"} 3.0' in lines(engine)
    assert not any(one.take())


def test_threads_share_it() -> None:
    counts = Counts(FAMILIES)

    def count() -> None:
        for _ in range(2000):
            counts.add("calls_total", "good")
            counts.observe((("seconds", "good"), 1.0))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts.counters() == {("calls_total", "good"): 8000}
    assert dict(counts.histograms()) == {("seconds", "good"): [8000.0, 0.0, 8000.0, 0.0]}
