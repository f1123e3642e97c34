import numpy as np

from foretell.bundle.manifest import Scaler
from foretell.models.data.scaler import fit, offset_channels, standardise


def test_fit_is_mean_and_population_deviation() -> None:
    scaler = fit(np.array([[1.0, 10.0], [3.0, 30.0]]))
    assert scaler.mean == (2.0, 20.0)
    assert scaler.std == (1.0, 10.0)


def test_a_constant_channel_has_deviation_one() -> None:
    values = np.full((1000, 1), 0.1)
    assert values.std() > 0
    assert fit(values).std == (1.0,)


def test_standardise() -> None:
    values = np.array([[1.0, 10.0], [3.0, 30.0]])
    result = standardise(values, fit(values))
    assert result.dtype == np.float32
    assert result.tolist() == [[-1, -1], [1, 1]]


def test_offsets_that_float32_cannot_carry() -> None:
    scaler = Scaler(mean=(9_999.0, -10_001.0, 2e6, 0.0), std=(1.0, 1.0, 300.0, 1e-9))
    assert offset_channels(scaler, ("a", "b", "c", "d")) == ["b"]
