import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.models.layers.window_norms import (
    OBSERVED_NORMS,
    WINDOW_NORMS,
    InstanceNorm,
    build_window_norm,
    takes_affine,
)

NAMES = [*WINDOW_NORMS, "robust+last", "standard+mean", "invariant+last", "decoupled+minmax"]


def normed(name: str, *values: float) -> tuple[list[float], float, float]:
    """A normalised window of one channel, and its level and spread."""
    history = torch.tensor(values, dtype=torch.float64)[None, :, None]
    found, statistics = build_window_norm(name, 1, affine=False)(history)
    assert isinstance(found, Tensor)
    return found.flatten().tolist(), statistics.centre.item(), statistics.spread.item()


@pytest.mark.parametrize("name", NAMES)
def test_norm_is_inverted(name: str) -> None:
    torch.manual_seed(0)
    layer = build_window_norm(name, 3, affine=takes_affine(name))
    if takes_affine(name):
        for each in layer.parameters():
            torch.nn.init.uniform_(each, 0.5, 1.5)
    # A decoupled norm applies its trained parameters only to the forecast.
    exact = 1 / (1 + 1e-6) if "decoupled" in name else 1
    history = torch.randn(2, 21, 3, dtype=torch.float64) * 3 + 100
    found, statistics = layer(history)
    assert found.shape == history.shape
    back = layer.reverse(found, statistics)
    torch.testing.assert_close(back, history, rtol=1e-5 if exact != 1 else 1e-9, atol=0)
    torch.testing.assert_close(layer.normalise(history, statistics), found)


@pytest.mark.parametrize("name", NAMES)
def test_each_window_and_channel_is_by_itself(name: str) -> None:
    torch.manual_seed(1)
    layer = build_window_norm(name, 3, affine=False)
    history = torch.randn(4, 10, 3)
    found, _ = layer(history)
    torch.testing.assert_close(layer(history[2:3])[0], found[2:3])
    other = history.clone()
    other[..., 0] = 7.0
    torch.testing.assert_close(layer(other)[0][..., 1:], found[..., 1:])


@pytest.mark.parametrize("name", ["standard", "robust", "minmax", "invariant"])
def test_norm_of_nan_is_nan(name: str) -> None:
    found, _, spread = normed(name, *[float("nan")] * 4)
    assert np.isnan([*found, spread]).all()


def test_local_scalers_add_nothing_to_a_spread() -> None:
    """Median and quartiles are interpolated."""
    values = (9.0, 1.0, 5.0, 2.0)
    assert normed("local-standard", *values)[1:] == pytest.approx((4.25, np.std(values)))
    assert normed("local-robust", *values)[1:] == (3.5, 2)
    assert normed("local-robust-iqr", *values)[1:] == (3.5, 6 - 1.75)
    assert normed("local-minmax", *values) == ([1, 0, 0.5, 0.125], 1, 8)
    for name in ("standard", "robust", "robust-iqr", "minmax"):
        assert normed(f"local-{name}", 3, 3, 3)[1:] == (3, 1)
        # float32 rounds 1 + 2e-7 to 1.
        assert normed(f"local-{name}", 0, 0, 2e-7, 2e-7)[2] == pytest.approx(
            {"standard": 1, "robust": 1}.get(name, 2e-7)
        )


@pytest.mark.parametrize("name", ["standard", "robust", "robust-iqr", "minmax"])
def test_local_scalers_equal_the_library(name: str) -> None:
    core = pytest.importorskip("neuralforecast.core")
    from coreforecast.grouped_array import GroupedArray

    random = np.random.default_rng(0)
    for length in (2, 3, 4, 9, 16):
        values = random.normal(size=length).cumsum()
        group = GroupedArray(values, np.array([0, length], np.int32))
        scaler = core._type2scaler[name]().fit(group)
        found, centre, spread = normed(f"local-{name}", *values)
        assert (centre, spread) == pytest.approx(tuple(scaler.stats_[0]))
        assert found == pytest.approx(scaler.transform(group).tolist(), abs=1e-12)


DEVIATION = (8 / 3) ** 0.5 + 1e-6


@pytest.mark.parametrize(
    ("name", "values", "centre", "spread", "found"),
    [
        ("standard", (1, 3, 5), 3, DEVIATION, [-2 / DEVIATION, 0, 2 / DEVIATION]),
        # Lower medians: 2 of the values 1, 2, 5, 9, and 1 of the distances 0, 1, 3, 7.
        ("robust", (9, 1, 5, 2), 2, 1 + 1e-6, [7, -1, 3, 0]),
        # If most values are equal, the spread is from the mean distance.
        ("robust", (4, 4, 4, 4, 9), 4, 2 * 0.6744897501960817 + 1e-6, None),
        ("magnitude", (-1, 3, 5), 0, 3, [-1 / 3, 1, 5 / 3]),
        ("magnitude", (0, 0), 0, 1e-10, None),
        ("minmax", (2, 6, 4), 2, 4 + 1e-6, [0, 1, 0.5]),
        ("minmax1", (2, 6, 4), None, None, [-1, 1, 0]),
        # The inverse hyperbolic sine of the result of `robust`.
        ("invariant", (9, 1, 5, 2), None, None, np.arcsinh([7, -1, 3, 0])),
    ],
)
def test_norms_by_hand(
    name: str,
    values: tuple[float, ...],
    centre: float | None,
    spread: float | None,
    found: list[float] | None,
) -> None:
    own, *statistics = normed(name, *values)
    if centre is not None:
        assert statistics == pytest.approx([centre, spread], rel=1e-9)
    if found is not None:
        assert own == pytest.approx(list(found), rel=1e-5, abs=1e-6)


def test_decoupled_norm_applies_parameters_only_to_outputs() -> None:
    layer = build_window_norm("decoupled", 2, affine=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, -1.0]))  # type: ignore[operator]
        layer.bias.copy_(torch.tensor([10.0, 20.0]))  # type: ignore[operator]
    history = torch.tensor([1.0, 3.0, 5.0]).reshape(1, 3, 1).expand(-1, -1, 2)
    found, statistics = layer(history)
    torch.testing.assert_close(found, build_window_norm("standard", 2, affine=False)(history)[0])
    deviation = (8 / 3) ** 0.5
    expected = torch.tensor([2 * deviation + 13, 23.0]).reshape(1, 1, 2)
    back = layer.reverse(torch.ones(1, 1, 2), statistics)
    torch.testing.assert_close(back, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["standard", "robust", "minmax", "invariant", "decoupled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_window_has_a_spread_of_one(name: str, dtype: torch.dtype) -> None:
    """The mean equals the value in spite of rounding."""
    layer = build_window_norm(name, 1, affine=False)
    history = torch.tensor([0.1, 12345.678, 1e-7, 0.0], dtype=dtype)[:, None, None]
    found, statistics = layer(history.expand(-1, 97, -1))
    assert not found.any()
    torch.testing.assert_close(statistics.spread, torch.full_like(history, 1 + 1e-6))


@pytest.mark.parametrize("name", ["mean", "standard", "robust", "minmax", "decoupled"])
def test_distributions_are_shifted_and_scaled_as_values_are(name: str) -> None:
    torch.manual_seed(3)
    layer = build_window_norm(name, 2, affine=False)
    for each in layer.parameters():
        torch.nn.init.uniform_(each, 0.5, 2)
    outputs = torch.randn(4, 5, 2)
    _, statistics = layer(torch.randn(4, 12, 2) + 3)
    assert layer.unwrap(outputs, statistics) == (outputs, layer, statistics)
    out = layer.out(statistics)
    assert out is not None
    torch.testing.assert_close(
        outputs * out.spread + out.centre, layer.reverse(outputs, statistics)
    )


def test_nested_norms_of_distributions() -> None:
    torch.manual_seed(4)
    history, outputs = torch.randn(2, 12, 1), torch.randn(2, 5, 1)
    inner = build_window_norm("last", 1, affine=False)
    for name in ("identity", "minmax1"):
        layer = build_window_norm(f"{name}+last", 1, affine=False)
        _, statistics = layer(history)
        kept, outer, kept_statistics = layer.unwrap(outputs, statistics)
        torch.testing.assert_close(kept, inner.reverse(outputs, statistics[1]))
        assert outer.out(kept_statistics) == (None if name == "identity" else statistics[0])


def test_first_name_is_the_outer_norm() -> None:
    torch.manual_seed(2)
    history = torch.randn(2, 12, 1)
    scaled, _ = build_window_norm("robust", 1, affine=False)(history)
    expected, _ = build_window_norm("last", 1, affine=False)(scaled)
    torch.testing.assert_close(
        build_window_norm("robust+last", 1, affine=False)(history)[0], expected
    )


def test_instance_norm_by_hand() -> None:
    history = torch.tensor([1.0, 3.0, 5.0])[None, :, None]
    spread = (8 / 3 + 1e-5) ** 0.5
    mean, _ = InstanceNorm(1)(history)
    torch.testing.assert_close(mean[0, :, 0], torch.tensor([-2.0, 0.0, 2.0]) / spread)
    last, _ = InstanceNorm(1, centre="last")(history)
    torch.testing.assert_close(last[0, :, 0], torch.tensor([-4.0, -2.0, 0.0]) / spread)


def test_zero_weight_is_inverted_without_division_by_zero() -> None:
    layer = InstanceNorm(1, affine=True)
    assert layer.weight is not None
    torch.nn.init.zeros_(layer.weight)
    normed, statistics = layer(torch.randn(1, 8, 1))
    assert torch.isfinite(layer.reverse(normed, statistics)).all()


def lacking() -> torch.Tensor:
    """Two windows of three channels, of which one has a single value, and one none."""
    torch.manual_seed(0)
    history = 5 + torch.randn(2, 9, 3)
    history[0, 0, 0] = history[0, -1, 0] = history[1, 3:8, 1] = torch.nan
    history[1, 1:, 2] = history[0, :, 2] = torch.nan
    return history


@pytest.mark.parametrize("name", OBSERVED_NORMS)
def test_missing_values_become_zero_and_do_not_count(name: str | None) -> None:
    history = lacking()
    norm = OBSERVED_NORMS[name](3, False)
    found, statistics = norm(history)
    values = history.double().numpy()
    empty = np.isnan(values).all(axis=1, keepdims=True)
    values = np.where(empty, 0, values)
    centre, spread = np.zeros((2, 1, 3)), np.ones((2, 1, 3))
    if name == "mean":
        centre = np.nanmean(values, axis=1, keepdims=True)
        spread = np.sqrt(np.nanvar(values, axis=1, keepdims=True) + 1e-5)
    elif name == "magnitude":
        spread = np.maximum(np.nanmean(np.abs(values), axis=1, keepdims=True), 1e-10)
    expected = (np.nan_to_num(history.double().numpy()) - centre) / spread
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if name is not None:
        forecast = norm.reverse(torch.ones(2, 1, 3), statistics)
        np.testing.assert_allclose(forecast, centre + spread, rtol=1e-5)
