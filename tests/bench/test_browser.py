from __future__ import annotations

from bench.browser import Visit, report


def test_the_median_and_the_longest_are_told() -> None:
    visits = [Visit(paint, 0.9, 48, 131_600) for paint in (0.3, 0.7, 0.4)]
    text = report("156", 7, visits, [0.02, 0.03, 0.11])
    assert "| first paint | 400 | 700 |" in text
    assert "| drawing a forecast of 1,000 rows | 30 | 110 |" in text
    assert "48 files, 132 kB" in text
