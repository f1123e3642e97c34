"""The ledger's gauges for Prometheus: scores of the latest forecasts, and its queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from foretell.service.counts import Family
from foretell.service.ledger.days import DAY_SECONDS
from foretell.service.ledger.reading import Selection, accuracy, latest
from foretell.service.ledger.scores import gauges as numbers_of

_LABELS = ("model", "version", "window")
# Days of actual values up to the last known one, by the value of the label.
_WINDOWS = {"day": 1, "week": 7}
_SCORES = {
    "mae": Family("Mean absolute error of the latest forecasts.", _LABELS),
    "mase": Family("That error over the error of repeating the last season.", _LABELS),
    "bias_ratio": Family("Mean of forecast less actual value, over the error.", _LABELS),
    "coverage": Family("Share of the actual values in the interval of 80%.", _LABELS),
}
_LATEST = Family(
    "Start of the last day with a compared actual value, in seconds since 1970.",
    ("model", "version"),
)
_WAITING = {
    "forecasts": Family("Forecasts that wait to be written to the ledger."),
    "bytes": Family("Bytes of forecasts that wait."),
    "limit_bytes": Family("Most bytes that may wait."),
}
_UP = Family("1 while the ledger's database answers, else 0.")

# Name and version of a model, and the window.
_Key = tuple[str, str, str]


class Waiting(NamedTuple):
    """The queue of the writer."""

    forecasts: int
    bytes: int
    limit_bytes: int


class Recent(NamedTuple):
    """Scores of the latest days.

    Attributes:
        scores: By version and window; each by name, as of `scores.gauges`.
        latest: Start of the last day, in seconds since 1970, by name and version.
    """

    scores: dict[_Key, dict[str, float]]
    latest: dict[tuple[str, str], int]


def read_recent(
    connection: Connection, served: Mapping[str, Mapping[str, str]], today: int
) -> Recent:
    """Scores of the served versions over the days up to their last actual value.

    Days after tomorrow are left out: their values have a wrong time.

    Args:
        connection: A connection that reads.
        served: Digests of the manifests of the served versions, by model and version.
        today: The day since 1970.
    """
    found = Recent({}, {})
    for model, digests in served.items():
        chosen = Selection(model, until=today + 1, served=digests)
        for version, day in latest(connection, chosen).items():
            if version not in digests:
                continue
            found.latest[model, version] = day * DAY_SECONDS
            for window, days in _WINDOWS.items():
                chosen = Selection(
                    model, version=version, since=day - days + 1, until=day, served=digests
                )
                for row in accuracy(connection, chosen, "total"):
                    found.scores[model, version, window] = numbers_of(row)
    return found


def write(recent: Recent, waiting: Waiting, *, up: bool) -> Iterator[bytes]:
    """All gauges of the ledger."""
    yield from _UP.gauges("foretell_ledger_up", [((), up)])
    for name, number in waiting._asdict().items():
        yield from _WAITING[name].gauges(f"foretell_ledger_queue_{name}", [((), number)])
    for name, family in _SCORES.items():
        samples = ((key, found[name]) for key, found in recent.scores.items() if name in found)
        yield from family.gauges(f"foretell_accuracy_{name}", samples)
    yield from _LATEST.gauges("foretell_accuracy_latest_timestamp_seconds", recent.latest.items())
