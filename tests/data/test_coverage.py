from datetime import timedelta

import pytest

from foretell.data.coverage import covered, learnable
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.data.panels import HOUR, table


def test_time_covered_by_several_series_counts_once() -> None:
    late = table(30, "late", "2024-01-02T00:00")
    panel = Panel((table(40, "a"), late, table(10, "b", "2024-03-01"), table(5, "c")))
    spans = [Span(0, 0, 40), Span(1, 0, 30), Span(2, 0, 10), Span(3, 1, 5)]
    # The second goes on from hour 24 to hour 53; the last lies within the first.
    assert covered(panel, spans) == timedelta(hours=53 + 9)
    assert covered(panel, spans[::-1]) == timedelta(hours=53 + 9)
    assert covered(panel, [Span(0, 10, 15)]) == timedelta(hours=4)


@pytest.mark.parametrize(
    ("days", "features"),
    [
        (1, ()),
        (10, ("hour",)),
        (28, ("hour", "day_of_week")),
        (255, ("hour", "day_of_week")),
        (360, ("hour", "day_of_week", "day_of_month")),
        (730, ("hour", "day_of_week", "day_of_month", "day_of_year")),
    ],
)
def test_few_cycles_teach_nothing(days: int, features: tuple[str, ...]) -> None:
    found = learnable(Calendar.for_frequency(HOUR, "scaled"), timedelta(days=days))
    assert (found.features if found else ()) == features


def test_months() -> None:
    calendar = Calendar.for_frequency(Frequency.parse("MS"), "scaled")
    assert learnable(calendar, timedelta(days=690)) is None
    assert learnable(calendar, timedelta(days=720)) == calendar
