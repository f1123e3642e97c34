from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.bundle.manifest import Scaler
from foretell.data.panel import Panel
from foretell.data.scaler import fit, offset_warning, standardise, typical_share
from foretell.data.splits import Span
from foretell.data.table import Table
from tests.data.panels import table


def fitted(values: NDArray[np.float64]) -> Scaler:
    rows, channels = values.shape
    return fit(Panel((replace(table(rows, channels=channels), values=values),)), [Span(0, 0, rows)])


def test_fit_is_mean_and_population_deviation() -> None:
    scaler = fitted(np.array([[1.0, 10.0], [3.0, 30.0]]))
    assert scaler.mean == (2.0, 20.0)
    assert scaler.std == (1.0, 10.0)


def test_fit_counts_every_row_of_the_spans_the_same() -> None:
    panel = Panel((table(20, "x"), table(9, "y")))
    scaler = fit(panel, [Span(0, 3, 10), Span(1, 0, 9)])
    rows = np.concatenate([panel.tables[0].values[3:10], panel.tables[1].values])
    np.testing.assert_allclose(scaler.mean, rows.mean(axis=0))
    np.testing.assert_allclose(scaler.std, rows.std(axis=0))


def test_a_constant_channel_has_deviation_one() -> None:
    values = np.full((1000, 1), 0.1)
    assert values.std() > 0
    assert fitted(values).std == (1.0,)


def test_standardise() -> None:
    values = np.array([[1.0, 10.0], [3.0, 30.0]])
    result = standardise(values, fitted(values))
    assert result.dtype == np.float32
    assert result.tolist() == [[-1, -1], [1, 1]]


def test_offsets_that_float32_cannot_carry() -> None:
    scaler = Scaler(mean=(9_999.0, -10_001.0, 2e6, 0.0), std=(1.0, 1.0, 300.0, 1e-9))
    said = offset_warning(scaler, ("a", "b", "c", "d"))
    assert said is not None
    assert said.startswith("b: the mean is more than 10,000 times the standard deviation. ")
    assert offset_warning(Scaler(mean=(5.0,), std=(1.0,)), ("a",)) is None


def test_the_typical_share_is_that_of_the_median_series() -> None:
    def scaled(name: str, *factors: float) -> Table:
        one = table(50, name)
        return replace(one, values=one.values / one.values.std(axis=0) * factors)

    tables = (scaled("a", 1, 30), scaled("b", 3, 60), scaled("c", 0, 90), scaled("d", 700, 90))
    spans = [Span(place, 0, 50) for place in range(4)]
    scaler = Scaler(mean=(0.0, 0.0), std=(6.0, 300.0))
    # The third is constant in one channel: 3 of 6, and between 60 and 90 of 300.
    assert typical_share(Panel(tables), spans, scaler) == pytest.approx(0.25)
    wide = Scaler(mean=(0.0, 0.0), std=(300.0, 300.0))
    assert typical_share(Panel(tables), spans, wide) == pytest.approx(0.01)
    assert typical_share(Panel(tables), spans, scaler, (0,)) == pytest.approx(0.5)
    assert typical_share(Panel(tables[:1]), spans[:1], scaler) == 1.0
