import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.heads import HEADS, ImplicitQuantiles, Quantiles
from foretell.models.inputs import Inputs
from foretell.models.layers.scales import InstanceStatistics
from tests.checkpoints import randomised

SIZES = {"channels": 3, "context": 27, "horizon": 5, "patch": 6, "d_model": 8, "heads": 2}


def make(**changes: object) -> Forecaster:
    config = ARCHITECTURES["huggingface-patchtst"].model_validate(SIZES | changes)
    return randomised(config)


def history() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 27, 3)


@pytest.mark.parametrize("name", HEADS)
def test_parameters_are_in_their_domain(name) -> None:
    head = HEADS[name]
    raw = torch.linspace(-50, 50, 30).reshape(-1, 1).expand(-1, head.size)
    names = dict(zip(head.described.parameters, head.constrain(raw).unbind(-1), strict=True))
    assert head.size == len(names)
    for name in {"scale", "total_count", "rate"} & names.keys():
        assert (names[name] > 0).all()
    assert (names.get("df", torch.full((1,), 3.0)) > 2).all()


def test_squareplus_by_hand() -> None:
    """(1.5 + sqrt(1.5² + 4)) / 2 = 2."""
    found = HEADS["student-t"].constrain(torch.tensor([1.5, -3.0, 1.5]))
    torch.testing.assert_close(found, torch.tensor([4.0, -3.0, 2.0]))
    torch.testing.assert_close(
        HEADS["normal"].constrain(torch.tensor([7.0, 1.5])), torch.tensor([7.0, 2.0])
    )
    torch.testing.assert_close(
        HEADS["negative-binomial"].constrain(torch.tensor([1.5, -1.0])), torch.tensor([2.0, -1.0])
    )
    torch.testing.assert_close(HEADS["poisson"].constrain(torch.tensor([1.5])), torch.tensor([2.0]))


def test_small_numbers_keep_their_digits() -> None:
    """Losses may divide by small parameters."""
    raw = (torch.arange(-1200, 1201) / 100).requires_grad_()
    found = HEADS["neuralforecast-poisson"].constrain(raw[:, None])[:, 0]
    exact = raw.detach().double()
    torch.testing.assert_close(found.double(), torch.log1p(torch.exp(exact)), rtol=1e-6, atol=0)
    found.sum().backward()
    assert raw.grad is not None
    torch.testing.assert_close(raw.grad.double(), torch.sigmoid(exact), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("values", "mean"), [(-1e4, math.log(2)), (1e4, 1e4), (1e12, 1e12)])
def test_counts_are_finite_for_any_window(values: float, mean: float) -> None:
    head = HEADS["neuralforecast-negative-binomial"]
    anchor = InstanceStatistics(torch.tensor([values]), torch.tensor([1.0]))
    found = head.anchored(torch.zeros(1, 2), anchor)
    assert found.isfinite().all()
    assert head.mean(found).item() == pytest.approx(mean, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_mean_and_scale_equal_torch(name) -> None:
    head = HEADS[name]
    torch.manual_seed(0)
    parameters = head.constrain(torch.randn(50, head.size, dtype=torch.float64))
    torch.testing.assert_close(head.mean(parameters), head.rules.torch(parameters).mean)
    centre, spread = torch.tensor(3.0).double(), torch.tensor(2.5).double()
    scaled = head.rules.torch(head.scaled(parameters, centre, spread))
    moved = 0 if head.is_of_counts else 3
    torch.testing.assert_close(scaled.mean, head.mean(parameters) * 2.5 + moved)
    if not head.is_of_counts:
        wanted = head.rules.torch(parameters).stddev * 2.5
        torch.testing.assert_close(scaled.stddev, wanted)


@pytest.mark.parametrize("name", HEADS)
def test_the_likelihood_is_largest_where_the_data_are(name) -> None:
    head = HEADS[name]
    parameters = head.constrain(torch.ones(4, head.size))
    losses = [head.loss(parameters, torch.full((4,), value)) for value in (1.0, 40.0)]
    assert losses[0] < losses[1]
    alone = -head.rules.torch(parameters).log_prob(torch.ones(4)).mean()
    torch.testing.assert_close(losses[0], alone)


@pytest.mark.parametrize("norm", ["mean", "robust+last", "minmax1", "invariant", "decoupled"])
@pytest.mark.parametrize("name", [name for name in HEADS if not HEADS[name].is_of_counts])
def test_level_and_scale_of_a_window_go_through_to_the_distribution(name, norm: str) -> None:
    model, windows = make(head=name, window_norm=norm), history()
    found, moved = (model.explain(rows).distribution for rows in (windows, windows * 7 + 100))
    assert found.shape == (2, 5, 3, HEADS[name].size)
    torch.testing.assert_close(moved[..., -2], found[..., -2] * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(moved[..., -1], found[..., -1] * 7, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(model(windows), found[..., -2])


def test_targets_are_picked_of_distributions_too() -> None:
    all_of_them, some = make(head="student-t"), make(head="student-t", targets=(0, 2))
    some.load_state_dict(all_of_them.state_dict())
    found = some.explain(history())
    torch.testing.assert_close(
        found.distribution, all_of_them.explain(history()).distribution[:, :, [0, 2]]
    )
    assert found.forecast.shape == (2, 5, 2)


def test_head_without_support_is_refused() -> None:
    class Plain(DLinearConfig):
        has_heads = False

    with pytest.raises(ValidationError, match="head: dlinear forecasts values alone"):
        Plain(channels=1, context=8, horizon=2, head="normal")
    for norm in ("mean", "last+robust"):
        with pytest.raises(ValidationError, match="affine: with a head, RevIN must be"):
            make(head="normal", affine=True, window_norm=norm)
    assert make(head="normal", affine=True, window_norm="identity+mean").head is not None


def test_quantiles_are_learned_together() -> None:
    head = Quantiles((0.1, 0.5, 0.9))
    quantiles = torch.tensor([[0.0, 2.0, 5.0]])
    assert head.mean(quantiles).tolist() == [2]
    # The losses at 3 are 0.1 * 3, 0.5 * 1 and 0.1 * 2.
    assert head.loss(quantiles, torch.tensor([3.0])).item() == pytest.approx((0.3 + 0.5 + 0.2) / 3)
    scaled = head.scaled(quantiles, torch.tensor([10.0]), torch.tensor([3.0]))
    assert scaled.tolist() == [[10, 16, 25]]


def test_implicit_quantiles_are_made_of_one_value_by_hand() -> None:
    head = ImplicitQuantiles((0.1, 0.5))
    state = {"factors": [2.0, -1.0], "bias": [1.0], "slope": [0.5]}
    head.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
    # Two steps: 2 * 3 + 1 and 2 * -1 + 1, then 1 - 3 and 1 + 1; half of what is below 0.
    found = head.values(torch.tensor([[[3.0], [-1.0]]]))
    assert found.tolist() == [[[7], [-0.5], [-1], [2]]]
    assert (head.size, head.described.parameters) == (1, ("0.1", "0.5"))


@pytest.mark.parametrize(("norm", "inner"), [("minmax1+last", "last"), ("minmax1", None)])
def test_implicit_quantiles_are_made_within_the_outer_norm(norm: str, inner: str | None) -> None:
    """The function is not linear, so it is applied in the units of the inner norm."""
    whole = make(window_norm=norm, head="implicit-quantiles", levels=(0.2, 0.5))
    factors, bias, slope = (torch.tensor(each) for each in ([-1.0, 2.0], [0.25], [0.5]))
    whole.head.load_state_dict({"factors": factors, "bias": bias, "slope": slope})
    plain = make(window_norm=inner)
    plain.load_state_dict(whole.state_dict(), strict=False)
    windows = history()
    low, high = windows.amin(1, keepdim=True), windows.amax(1, keepdim=True)
    scale = high - low + 1e-6
    outputs = plain((windows - low) / scale * 2 - 1)[..., None]
    made = torch.nn.functional.prelu(outputs * factors + bias, slope)
    found = whole.explain(windows)
    expected = (made + 1) / 2 * scale[..., None] + low[..., None]
    torch.testing.assert_close(found.distribution, expected)
    torch.testing.assert_close(found.forecast, expected[..., 1])


def test_implicit_quantiles_are_learned() -> None:
    model = make(head="implicit-quantiles", levels=(0.1, 0.5), window_norm=None)
    learned, _ = model.forecast_to_learn(Inputs(history()), torch.zeros(2, 5, 3), 0.5)
    model.head.loss(learned, torch.zeros(2, 5, 3)).backward()
    for each in model.head.parameters():
        assert (each.grad != 0).all()


@pytest.mark.parametrize("norm", ["mean", "robust+last", "minmax1", "invariant", "decoupled"])
def test_level_and_scale_go_through_to_quantiles(norm: str) -> None:
    model, windows = make(head="quantiles", levels="0.2,0.5", window_norm=norm), history()
    found, moved = (model.explain(rows).distribution for rows in (windows, windows * 7 + 100))
    assert found.shape == (2, 5, 3, 2)
    torch.testing.assert_close(moved, found * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(model(windows), found[..., 1])


def test_a_norm_is_undone_on_quantiles_as_on_values() -> None:
    model = make(head="quantiles", levels=(0.5,), window_norm="mean", affine=True)
    plain = make(window_norm="mean", affine=True)
    for each in (model, plain):
        torch.nn.init.uniform_(each.window_norm.weight, 0.5, 0.5)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(history()), plain(history()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"head": "quantiles"},
            "levels: a head of quantiles needs them, no other has",
        ),
        ({"head": "normal", "levels": (0.5,)}, "levels: a head of quantiles needs them"),
        ({"head": "implicit-quantiles"}, "levels: a head of quantiles needs them"),
        ({"head": "quantiles", "levels": "0.1,0.9"}, "levels: expected the median, 0.5, among"),
        (
            {"head": "quantiles", "levels": "0.9,0.5"},
            "levels: expected numbers between 0 and 1, asc",
        ),
    ],
)
def test_levels_of_quantiles(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**fields)


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("patchtst", {"decomposition": 3}, "decomposition: excludes a head"),
        ("transformer", {"decoding": "autoregressive", "label": 8}, "head: needs one_pass"),
        ("transformer", {"guidance": 0.5}, "head: needs one_pass decoding without guidance"),
    ],
)
def test_invalid_heads_are_refused(
    architecture: str, fields: dict[str, object], message: str
) -> None:
    sizes = SIZES | {"architecture": architecture, "head": "normal"}
    if architecture != "patchtst":
        del sizes["patch"]
    ARCHITECTURES.read(sizes)
    with pytest.raises(ValidationError, match=message):
        ARCHITECTURES.read(sizes | fields)


@pytest.mark.parametrize(
    "architecture", ["patchtst", "dlinear", "itransformer", "timexer", "transformer", "autoformer"]
)
def test_each_parameter_has_a_map_of_its_own(architecture: str) -> None:
    """A model without a head and with the map of the first parameter forecasts that parameter."""
    sizes = {"architecture": architecture, "window_norm": None}
    sizes |= {name: SIZES[name] for name in ("channels", "context", "horizon")}
    headed = randomised(ARCHITECTURES.read(sizes | {"head": "normal"}))
    plain = ARCHITECTURES.read(sizes).build().eval()
    state = {
        # Parameters of the mean come first.
        name: headed.state_dict()[name][: len(own)] if own.ndim else headed.state_dict()[name]
        for name, own in plain.state_dict().items()
    }
    plain.load_state_dict(state)
    found = headed.explain(history()).distribution
    assert found.shape == (2, 5, 3, 2)
    torch.testing.assert_close(found[..., 0], plain(history()))
    assert found[..., 1].std() > 0
