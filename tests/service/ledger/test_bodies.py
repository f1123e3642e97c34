"""Arrays of forecasts as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.service.ledger.bodies import Bodies, Shape

SHAPE = Shape(6, 2, 3)


def bodies(times: list[list[int]], season: int) -> Bodies:
    count = len(times)
    rng = np.random.default_rng(season)
    steps, channels, levels = SHAPE

    def values(*sizes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(size=(count, *sizes)).astype(np.float32)

    return Bodies(
        rng.normal(size=(count, channels)),
        np.array(times, np.int64),
        values(steps, channels),
        values(season, channels),
        values(levels, steps, channels),
    )


EVEN = bodies([[10, 20, 30, 40, 50, 60], [-7, 0, 7, 14, 21, 28]], 4)
UNEVEN = bodies([[1, 2, 3, 4, 5, 7]], 1)


def check(found: Bodies, *expected: Bodies) -> None:
    for name in ("scale", "times", "mean", "naive", "quantiles"):
        own = np.concatenate([getattr(each, name) for each in expected])
        np.testing.assert_array_equal(getattr(found, name), own)
        assert getattr(found, name).dtype == own.dtype


@pytest.mark.parametrize("stored", [EVEN, UNEVEN])
def test_bodies_are_read_as_they_were_written(stored: Bodies) -> None:
    check(Bodies.read(stored.write(), SHAPE), stored)


def test_bodies_of_different_forms_are_read_in_their_order() -> None:
    (first, second), [other] = EVEN.write(), UNEVEN.write()
    one, two = (Bodies(*(each[place : place + 1] for each in EVEN)) for place in (0, 1))
    check(Bodies.read([first, other, second], SHAPE), one, UNEVEN, two)


@pytest.mark.parametrize("steps", [1, 2])
def test_bodies_of_few_steps(steps: int) -> None:
    stored = Bodies(
        *EVEN[:1], *(each[:, :steps] for each in EVEN[1:4]), EVEN.quantiles[:, :, :steps]
    )
    check(Bodies.read(stored.write(), SHAPE._replace(steps=steps)), stored)


def test_even_times_and_repeated_seasons_take_no_room() -> None:
    assert len(EVEN.write()[0]) == 8 + 2 * 8 + 2 * 8 + 4 * (6 * 2 + 4 * 2 + 3 * 6 * 2)


def test_naive_forecast_repeats_the_season() -> None:
    rows = EVEN.season[0]
    np.testing.assert_array_equal(EVEN.naive[0], np.concatenate([rows, rows[:2]]))
