import numpy as np
import pytest
import torch

from foretell.models.layers.paths import Draw, Paths, ascending, levels, places

COUNT, STEPS = 8, 3


def test_each_step_has_each_level_once() -> None:
    found = places(STEPS, COUNT)
    assert all(sorted(step) == list(range(COUNT)) for step in found)
    assert found[0] != found[1]
    assert found == places(STEPS, COUNT)
    assert levels(4) == (0.125, 0.375, 0.625, 0.875)


@pytest.mark.parametrize("count", [8, 100])
@pytest.mark.parametrize("family", ["normal", "student-t"])
def test_drawn_values_are_quantiles_of_levels(family, count: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="what it is compared with")
    random = np.random.default_rng(0)
    df = np.concatenate([[2.0001, 3, 1e6], 2 + random.exponential(5, 7)])
    loc, scale = random.normal(size=10), random.exponential(size=10)
    names = [loc, scale] if family == "normal" else [df, loc, scale]
    parameters = torch.tensor(np.stack(names, axis=-1)).expand(2, count, 10, -1)
    draw = Draw(family, STEPS, 10, count).double()
    orders = np.array(places(STEPS * 10, count)).reshape(STEPS, 10, count)
    for step, order in enumerate(orders):
        level = np.array(levels(count))[order].T
        known = stats.norm.ppf(level) if family == "normal" else stats.t.ppf(level, df)
        found = draw(parameters, step)
        assert found.shape == (2, count, 10)
        np.testing.assert_allclose(found[1], loc + scale * known, rtol=1e-6, atol=1e-6)


def test_ranks_of_each_step_and_channel() -> None:
    torch.manual_seed(0)
    paths = torch.randn(2, STEPS, COUNT, 3)
    torch.testing.assert_close(ascending(paths), paths.sort(dim=2).values)


def test_paths_are_shifted_scaled_and_scored_one_by_one() -> None:
    head = Paths(2)
    known = torch.tensor([[1.0, 3.0], [-2.0, 0.0]])
    assert torch.equal(head.constrain(known), known)
    torch.testing.assert_close(head.mean(known), torch.tensor([2.0, -1.0]))
    moved = head.scaled(known, torch.tensor([10.0, 20.0]), torch.tensor([2.0, 3.0]))
    torch.testing.assert_close(moved, torch.tensor([[12.0, 16.0], [14.0, 20.0]]))
    # Losses are 0.25 * 1 and 0.25 * 1 at 2, and 0.75 * 2 and 0.25 * 4 at -4.
    found = head.loss(known, torch.tensor([2.0, -4.0]))
    torch.testing.assert_close(found, torch.tensor((0.25 + 0.25 + 1.5 + 1) / 4))
    assert head.described.levels == (0.25, 0.75)


def test_drawing_has_gradients_where_the_series_vanishes() -> None:
    """With four degrees of freedom all coefficients of the series but the first are 0."""
    draw = Draw("student-t", 1, 1, COUNT)
    parameters = torch.tensor([4.0, 1.0, 2.0]).expand(1, COUNT, 1, 3).clone().requires_grad_()
    draw(parameters, 0).sum().backward()
    assert parameters.grad is not None
    assert parameters.grad.isfinite().all()
