"""Requirements of every mechanism at every site."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attention.evidence import Evidence, Parts
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, Site
from tests.models.attention.places import (
    D_MODEL,
    FUTURE,
    HEADS,
    OTHERS,
    PLACES,
    allowed,
    default,
    placed,
    site_of,
)

TYPES = {"float32": torch.float32, "int64": torch.int64}
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
def test_mechanism_is_allowed_in_an_encoder(name: str) -> None:
    assert allowed(name, PLACES["encoder"])


@EVERYWHERE
def test_evidence_matches_the_description(name: str, place: str) -> None:
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
def test_explaining_does_not_change_the_output(name: str, place: str) -> None:
    module = build(name, place)
    explained, plain = (module(*inputs(place), explain=explain) for explain in (True, False))
    assert plain.evidence is None
    torch.testing.assert_close(explained.output, plain.output, rtol=1e-5, atol=1e-6)


@EVERYWHERE
def test_output_does_not_depend_on_the_batch(name: str, place: str) -> None:
    module = build(name, place)
    tokens, source = inputs(place, batch=5)
    together = module(tokens, source).output
    for i in range(len(tokens)):
        alone = module(tokens[i : i + 1], source[i : i + 1]).output
        torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-5, atol=1e-6)


@EVERYWHERE
def test_loaded_state_gives_the_same_output(name: str, place: str) -> None:
    trained, other = build(name, place), build(name, place, seed=3)
    other.load_state_dict(trained.state_dict())
    assert torch.equal(trained(*inputs(place)).output, other(*inputs(place)).output)


@EVERYWHERE
def test_gradients_equal_finite_differences(name: str, place: str) -> None:
    module = build(name, place).double()
    tokens, source = (part[:1].double() for part in inputs(place))
    direction = torch.randn_like(tokens)
    tokens.requires_grad_()
    itself = source.shape == tokens.shape
    found = _summed(module, tokens, None if itself else source)
    # Zero if only the number of tokens matters.
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
def test_all_parameters_get_gradients(name: str, place: str) -> None:
    module = build(name, place).train()
    tokens, source = inputs(place)
    # Layers without parameters still pass gradients on.
    module(tokens.requires_grad_(), source).output.square().sum().backward()
    gradients = {which: part.grad for which, part in module.named_parameters()}
    assert all(each is not None and each.isfinite().all() for each in gradients.values()), gradients


# Mechanisms whose weights have no dropout; the mixture contains one of them.
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
        # Queries that do not attend still return the mean of all values.
        assert not torch.allclose(dropped, plain)
    else:
        outs = [part.out.bias for part in module.modules() if hasattr(part, "out")]
        torch.testing.assert_close(dropped, sum(outs).expand_as(dropped))


@pytest.mark.parametrize(
    ("name", "place"), [each for each in placed() if each[1] in ("encoder", "decoder")]
)
def test_large_inputs_stay_finite(name: str, place: str) -> None:
    module, (tokens, _) = build(name, place), inputs(place)
    tokens = (1e4 * tokens).requires_grad_()
    output = module(tokens, tokens).output
    (gradient,) = torch.autograd.grad(output.sum(), tokens, materialize_grads=True)
    assert output.isfinite().all()
    assert gradient.isfinite().all()


CAUSAL = [name for name in MECHANISMS if allowed(name, PLACES["decoder"])]


@pytest.mark.parametrize("explain", [False, True])
# Changes within a chunk, and at the border of two chunks.
@pytest.mark.parametrize(("length", "changed"), [(14, 9), (97, 31), (97, 40), (97, 96)])
@pytest.mark.parametrize("name", CAUSAL)
def test_causal_mechanism_does_not_read_later_steps(
    name: str, length: int, changed: int, explain: bool
) -> None:
    module = build(name, site_of(length, causal=True, chained=False))
    tokens = torch.randn(1, length, D_MODEL)
    later = tokens.clone()
    later[:, changed:] = 100 * torch.randn_like(later[:, changed:])
    before, after = (module(each, each, explain=explain).output for each in (tokens, later))
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed:], after[:, changed:])


STEPS, CHANNELS = PLACES["encoder"], PLACES["channels"]
CROSS, MIXED = PLACES["cross"], STEPS._replace(key=CHANNELS.key)
UNION = {"mechanism": "union", **OTHERS["union"]}


@pytest.mark.parametrize(
    ("settings", "site", "message"),
    [
        *(
            (name, PLACES["decoder"], f"attention: {name} has no causal form, which is needed")
            for name in MECHANISMS
            if not MECHANISMS[name].has_causal and name != "mixture"
        ),
        *(
            (name, CROSS, f"attention: {name} is for self-attention alone")
            for name in ("local", "stride", "global", "union")
        ),
        *(
            (name, CHANNELS, f"attention: channels have no order that {name} needs")
            for name in ("local", "stride", "global", "union")
        ),
        *(
            (name, PLACES["group"], f"attention: {name} mixes whole tokens, not those of heads")
            for name in ("fourier", "mlp")
        ),
        *(
            (name, CROSS, f"attention: {name} is for self-attention alone")
            for name in ("fourier", "mlp")
        ),
        ("softmax", STEPS._replace(heads=3), "heads: 3 heads do not divide d_model 8"),
        ("autocorrelation", PLACES["patches"], "autocorrelation cannot be within channels"),
        ("autocorrelation", MIXED, "autocorrelation is between steps alone"),
        (
            "autocorrelation",
            STEPS._replace(key=Axis(length=24, start=-48, stride=2)),
            "autocorrelation is between steps alone",
        ),
        (
            {"mechanism": "autocorrelation", "factor": 0.1},
            STEPS,
            "factor: 0.1 keeps 0 of the 24 lags at length 24",
        ),
        ({"mechanism": "autocorrelation", "factor": 9}, STEPS, "factor: 9 keeps 28 of the 24 lags"),
        ("aft-local", MIXED, "attention: channels have no order that aft-local needs"),
        ("rotary", MIXED, "attention: no distance of steps and channels"),
        (
            "rotary",
            STEPS._replace(width=6),
            "heads: rotary needs a multiple of 2 features, not 3",
        ),
        (
            {"mechanism": "rotary", "grid_columns": 4},
            STEPS._replace(width=12),
            "heads: rotary needs a multiple of 4 features, not 6",
        ),
        ("reformer", CROSS, "attention: reformer has one vector for query and key"),
        (
            {"mechanism": "reformer", "buckets": 699052},
            STEPS,
            "buckets: expected at most 699050 here",
        ),
        ("routing", CROSS, "attention: routing has the same clusters for queries"),
        (
            {"mechanism": "routing", "clusters": 25},
            STEPS,
            "clusters: expected at most the length, 24$",
        ),
        ("sinkhorn", CROSS, "attention: sinkhorn has the same blocks for queries"),
    ],
)
def test_mechanism_is_refused_at_unsupported_sites(
    settings: str | dict[str, Any], site: Site, message: str
) -> None:
    config = default(settings) if isinstance(settings, str) else MECHANISMS.read(settings)
    with pytest.raises(ValueError, match=message):
        config.check(site)


@pytest.mark.parametrize(
    ("settings", "site"),
    [
        # At their limits.
        ({"mechanism": "aft-full"}, MIXED),
        ({"mechanism": "reformer", "buckets": 699050}, STEPS),
        ({"mechanism": "routing", "clusters": 24}, STEPS),
        ({"mechanism": "fourier"}, STEPS._replace(width=D_MODEL)),
    ],
)
def test_mechanism_is_accepted_at_supported_sites(settings: dict[str, Any], site: Site) -> None:
    MECHANISMS.read(settings).check(site)


def landmarks(count: int) -> tuple[str, list[tuple[int, ...]]]:
    return "landmarks", [(HEADS, FUTURE, count)]


def chosen(length: int, rows: int, taken: int, of: int) -> tuple[str, list[tuple[int, ...]]]:
    return "steps", [(HEADS, length, length), (HEADS, rows, taken), (HEADS, rows, of)]


@pytest.mark.parametrize(
    ("settings", "length", "shown"),
    [
        *(
            ({"mechanism": "compressed", "compression": compression}, None, landmarks(blocks))
            for compression, blocks in ((1, 24), (3, 8), (5, 5), (24, 1), (100, 1))
        ),
        *(
            ({"mechanism": "linformer", "landmarks": landmark_count}, None, landmarks(count))
            for landmark_count, count in ((5, 5), (24, 24), (100, 24))
        ),
        *(
            ({"mechanism": "reformer"}, length, chosen(length, 2 * length, 1, buckets))
            for length, buckets in ((5, 4), (96, 4), (336, 10), (720, 22))
        ),
        *(
            ({"mechanism": "routing"}, length, chosen(length, 2 * clusters, taken, length))
            for length, clusters, taken in ((5, 2, 3), (42, 6, 7), (720, 27, 27))
        ),
        *(
            (
                {"mechanism": "probsparse", "factor": factor},
                length,
                ("steps", [(HEADS, length, length), (HEADS, kept), (HEADS, length)]),
            )
            for factor, length, kept in (
                *((5, 5, 5), (5, 24, 15), (5, 96, 22), (5, 720, 32)),
                *((0.1, 1, 1), (0.1, 5, 1), (0.1, 720, 1)),
            )
        ),
        # A union is dense if some queries read all keys.
        (UNION, 24, ("steps", [(HEADS, 24, 24)] * 2)),
        (
            {"mechanism": "union", "patterns": ["stride", "global"]},
            24,
            ("steps", [(HEADS, 24, 24)]),
        ),
    ],
)
def test_described_outputs_have_these_shapes(
    settings: dict[str, Any], length: int | None, shown: tuple[str, list[tuple[int, ...]]]
) -> None:
    """A map of `length` steps, or of a decoder that reads an encoder."""
    site = CROSS if length is None else site_of(length)
    (stage,) = MECHANISMS.read(settings).describe("stage", site)
    assert (stage.key.of, [output.shape for output in stage.outputs]) == shown


class Inheriting(HeadedAttention):
    """A plug-in, which adds to the scores of the layer before."""

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        scores = query @ key.transpose(-1, -2)
        scores = scores if call.inherited is None else scores + call.inherited
        return Attended(scores.softmax(dim=-1) @ value, scores=scores)


def test_scores_are_passed_to_the_next_layer() -> None:
    torch.manual_seed(0)
    layer, tokens = Inheriting(site_of(5)), torch.randn(1, 5, 8)
    first = layer(tokens, tokens)
    again = layer(tokens, tokens, inherited=first.scores)
    torch.testing.assert_close(again.scores, 2 * first.scores)
    assert not torch.allclose(first.output, again.output)
