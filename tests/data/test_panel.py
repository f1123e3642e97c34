from dataclasses import replace

import numpy as np
import pytest

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.timeaxis.frequency import Frequency
from tests.data.panels import HOUR, table


def test_a_panel_is_its_tables() -> None:
    panel = Panel((table(5, "x"), table(7, "y"), table(3, "x", "2024-02-01")))
    assert (panel.channels, panel.frequency) == (("a", "b"), HOUR)
    assert len(panel) == 15
    assert panel.series == {"x": [0, 2], "y": [1]}


def test_refuses_nothing_and_series_that_differ() -> None:
    with pytest.raises(DataError, match="at least one series"):
        Panel(())
    first = table(5, "x")
    for other in (
        replace(first, series="y", channels=("a", "c")),
        replace(first, series="y", frequency=Frequency.parse("D")),
    ):
        with pytest.raises(DataError, match=r"series 'y': .* not those of series 'x'"):
            Panel((first, other))


def test_some_channels_in_another_order() -> None:
    panel = Panel((table(5, "x", channels=3), table(4, "y", channels=3)))
    chosen = panel.select(("c", "a"))
    assert chosen.channels == ("c", "a")
    np.testing.assert_array_equal(chosen.tables[1].values, panel.tables[1].values[:, [2, 0]])


def test_the_fingerprint_is_of_the_content() -> None:
    one, other = table(5, "x"), table(4, "y")
    panel = Panel((one, other))
    same = Panel((replace(one, values=one.values.copy()), other))
    changed = replace(one, values=one.values + 1e-9)
    later = replace(one, timestamps=one.timestamps + np.timedelta64(1, "h"))
    renamed = replace(one, channels=("a", "c"))
    others = (
        Panel((changed, other)),
        Panel((later, other)),
        Panel((renamed,)),
        Panel((one,)),
        Panel((one, replace(other, series="z"))),
    )
    assert same.fingerprint() == panel.fingerprint()
    assert len({each.fingerprint() for each in (panel, *others)}) == 6
