"""What every mechanism must keep to, wherever it may be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foretell.models.attention.evidence import Evidence, Parts
from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.places import D_MODEL, PLACES, allowed, default, placed, site_of

TYPES = {"float32": torch.float32, "int64": torch.int64}
CHANGED = 9
EVERYWHERE = pytest.mark.parametrize(("name", "place"), list(placed()))


def build(name: str, place: str | Site, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    site = PLACES[place] if isinstance(place, str) else place
    return default(name).build(site).eval()


def inputs(place: str, batch: int = 2) -> tuple[Tensor, Tensor]:
    site = PLACES[place]
    torch.manual_seed(1)
    rows = batch * (site.channels or 1)
    tokens = torch.randn(rows, site.query.length, D_MODEL)
    if site.query == site.key:
        return tokens, tokens
    return tokens, torch.randn(rows, site.key.length, D_MODEL)


def flat(name: str, evidence: Evidence | None) -> dict[str, Evidence | None]:
    if isinstance(evidence, Parts):
        return {f"{name}.{part}": one for part, one in evidence.by_name.items()}
    return {name: evidence}


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_encoder_may_have_it(name: str) -> None:
    assert allowed(name, PLACES["encoder"])


@EVERYWHERE
def test_what_it_shows_is_as_described(name: str, place: str) -> None:
    site, module = PLACES[place], build(name, place)
    tokens, source = inputs(place)
    attended = module(tokens, source, explain=True)
    assert attended.output.shape == tokens.shape
    stages = default(name).describe("stage", site)
    shown = flat("stage", attended.evidence)
    assert list(shown) == [stage.name for stage in stages]
    for stage in stages:
        assert stage.mechanism in MECHANISMS
        for output in stage.outputs:
            part = getattr(shown[stage.name], output.name.removeprefix(f"{stage.name}."))
            shape = part.shape[1:] if site.channels is None else (site.channels, *part.shape[1:])
            assert (part.shape[0], part.dtype) == (len(tokens), TYPES[output.type])
            assert tuple(shape) == output.shape


@EVERYWHERE
def test_a_forecast_does_not_depend_on_who_asks_why(name: str, place: str) -> None:
    module = build(name, place)
    asked, plain = (module(*inputs(place), explain=explain) for explain in (True, False))
    assert plain.evidence is None
    torch.testing.assert_close(asked.output, plain.output, rtol=1e-5, atol=1e-6)


@EVERYWHERE
def test_neighbours_in_a_batch_change_nothing(name: str, place: str) -> None:
    module = build(name, place)
    tokens, source = inputs(place, batch=5)
    together = module(tokens, source).output
    for i in range(len(tokens)):
        alone = module(tokens[i : i + 1], source[i : i + 1]).output
        torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-5, atol=1e-6)


@EVERYWHERE
def test_whoever_reads_the_checkpoint_gets_the_same(name: str, place: str) -> None:
    trained, other = build(name, place), build(name, place, seed=3)
    other.load_state_dict(trained.state_dict())
    assert torch.equal(trained(*inputs(place)).output, other(*inputs(place)).output)


@EVERYWHERE
def test_gradients_are_those_of_its_numbers(name: str, place: str) -> None:
    module = build(name, place).double()
    tokens, source = (part[:1].double() for part in inputs(place))
    direction = torch.randn_like(tokens)
    tokens.requires_grad_()
    itself = source.shape == tokens.shape
    found = _summed(module, tokens, None if itself else source)
    # Zero where tokens only say how many they are.
    (gradient,) = torch.autograd.grad(found, tokens, materialize_grads=True)
    step = 1e-6 * direction
    with torch.no_grad():
        ends = [
            _summed(module, tokens + sign * step, None if itself else source) for sign in (1, -1)
        ]
    expected = (ends[0] - ends[1]) / 2e-6
    torch.testing.assert_close((gradient * direction).sum(), expected, rtol=1e-4, atol=1e-5)


def _summed(module: nn.Module, tokens: Tensor, source: Tensor | None) -> Tensor:
    output: Tensor = module(tokens, tokens if source is None else source).output
    return (output * torch.linspace(-1, 1, output.numel()).reshape(output.shape)).sum()


@EVERYWHERE
def test_it_trains(name: str, place: str) -> None:
    module = build(name, place).train()
    tokens, source = inputs(place)
    # What has no parameters still hands gradients back.
    module(tokens.requires_grad_(), source).output.square().sum().backward()
    gradients = {which: part.grad for which, part in module.named_parameters()}
    assert all(each is not None and each.isfinite().all() for each in gradients.values()), gradients


# Mechanisms without weights to drop; a mixture has such a part.
WITHOUT_DROPOUT = {
    *("aft-full", "aft-local", "aft-simple", "autocorrelation", "efficient", "fourier", "linear"),
    *("mixture", "mlp", "performer", "random-features"),
}


@pytest.mark.parametrize("name", sorted({*MECHANISMS} - WITHOUT_DROPOUT))
def test_dropout_in_training_only(name: str) -> None:
    torch.manual_seed(0)
    module = default(name).build(PLACES["encoder"]._replace(dropout=1.0))
    tokens, source = inputs("encoder")
    plain = module.eval()(tokens, source).output
    dropped = module.train()(tokens, source, explain=True).output
    torch.testing.assert_close(plain, build(name, "encoder")(tokens, source).output)
    if name == "probsparse":
        # The mean of all values is left, of queries that do not attend.
        assert not torch.allclose(dropped, plain)
    else:
        outs = [part.out.bias for part in module.modules() if hasattr(part, "out")]
        torch.testing.assert_close(dropped, sum(outs).expand_as(dropped))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("causal", [False, True])
def test_large_numbers(name: str, causal: bool) -> None:
    place = "decoder" if causal else "encoder"
    if not allowed(name, PLACES[place]):
        pytest.skip("has no causal form")
    module, (tokens, _) = build(name, place), inputs(place)
    tokens = (1e4 * tokens).requires_grad_()
    output = module(tokens, tokens).output
    (gradient,) = torch.autograd.grad(output.sum(), tokens, materialize_grads=True)
    assert output.isfinite().all()
    assert gradient.isfinite().all()


CAUSAL = [name for name in MECHANISMS if allowed(name, PLACES["decoder"])]


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("name", CAUSAL)
def test_no_later_step_leaks(name: str, explain: bool) -> None:
    module = build(name, "decoder")
    tokens, _ = inputs("decoder")
    later = tokens.clone()
    later[:, CHANGED:] = 3 * torch.randn_like(later[:, CHANGED:])
    before, after = (module(each, each, explain=explain).output for each in (tokens, later))
    assert torch.equal(before[:, :CHANGED], after[:, :CHANGED])
    assert not torch.equal(before[:, CHANGED:], after[:, CHANGED:])


@pytest.mark.parametrize("changed", [31, 40, 96])
@pytest.mark.parametrize("name", CAUSAL)
def test_no_later_step_leaks_through_a_chunk(name: str, changed: int) -> None:
    module, tokens = (
        build(name, site_of(97, causal=True, chained=False)),
        torch.randn(1, 97, D_MODEL),
    )
    later = tokens.clone()
    later[:, changed:] = 100 * torch.randn_like(later[:, changed:])
    before, after = (module(each, each).output for each in (tokens, later))
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed:], after[:, changed:])


@pytest.mark.parametrize("name", [name for name in MECHANISMS if not MECHANISMS[name].has_causal])
def test_one_that_cannot_be_causal_says_so(name: str) -> None:
    with pytest.raises(ValueError, match=f"attention: {name} has no causal form, which is needed"):
        default(name).check(PLACES["decoder"])
