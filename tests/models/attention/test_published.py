"""Mechanisms compared with published packages; comments name the differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from foretell.models.attention.mechanism import Call
from foretell.models.attention.zoo.reformer import Reformer, ReformerConfig
from tests.models.attention.places import made, random, site_of
from tests.models.attention.published import published

Pair = tuple[Tensor, Tensor]
LENGTH = 24


def build(name: str, **settings: object) -> nn.Module:
    return made({"mechanism": name, **settings}, site_of(LENGTH))


def parts(layer: nn.Module, tokens: Tensor) -> list[Tensor]:
    return [layer.split(each(tokens)) for each in (layer.query, layer.key, layer.value)]


def of_efficient() -> Pair:
    """The package also divides by the root of a head's width; the paper does not."""
    package = published("linear_attention_transformer.linear_attention_transformer")
    given = random(3, 2, 2, 9, 4).unbind()
    return build("efficient").mix(*given, Call()).output, package.linear_attn(*given) * 2


def of_performer() -> Pair:
    """By default theirs adds 1e-4 to all features, and subtracts one maximum from all keys."""
    package = published("performer_pytorch.performer_pytorch")
    layer, given = build("performer"), random(3, 2, 2, 9, 4).unbind()
    query, key = (
        package.softmax_kernel(part, projection_matrix=layer.projection.T, is_query=which, eps=0.0)
        for part, which in zip(given, (True, False), strict=False)
    )
    return layer.mix(*given, Call()).output, package.linear_attention(query, key, given[2])


def of_linformer() -> Pair:
    module, tokens = build("linformer", landmarks=5), random(3, LENGTH, 8)
    theirs = published("linformer").LinformerSelfAttention(8, LENGTH, k=5, heads=2).double()
    for name in ("query", "key", "value"):
        ours, other = getattr(module, name), getattr(theirs, f"to_{name[0]}")
        ours.weight.data, ours.bias.data = other.weight.data, 0 * ours.bias
    module.out = theirs.to_out
    module.of_keys.data, module.of_values.data = theirs.proj_k.data.T, theirs.proj_v.data.T
    return module(tokens, tokens).output, theirs(tokens)


def of_local(*, causal: bool) -> Pair:
    """An exact window of 8 in the package reads distances up to 8, which is `window` 9 here."""
    theirs = published("local_attention").LocalAttention(
        8, causal=causal, exact_windowsize=True, use_rotary_pos_emb=False
    )
    module = made({"mechanism": "local", "window": 9}, site_of(48, causal=causal))
    tokens = random(2, 48, 8)
    mixed = theirs(*(part.flatten(0, 1) for part in parts(module, tokens)))
    return module(tokens, tokens).output, module.merge(mixed.reshape(2, 2, 48, -1))


def of_rotary() -> Pair:
    """rotary-embedding-torch turns neighbours."""
    package = published("rotary_embedding_torch")
    theirs = package.RotaryEmbedding(4, custom_freqs=50.0 ** (-torch.arange(0, 4, 2) / 4))
    settings = {"mechanism": "rotary", "pairs": "neighbours", "base": 50}
    axis = site_of(11).query.model_copy(update={"start": 0})
    heads = random(2, 2, 11, 4)
    layer = made(settings, site_of(11, query=axis, key=axis))
    return layer.turn_query(heads), theirs.rotate_queries_or_keys(heads)


def of_reformer(rounds: int, chunk: int, *, causal: bool) -> Pair:
    """Options of the package that count pairs once and leave other buckets out are off.

    If causal, the package cuts chunks; two chunks with all tokens are comparable.
    """
    settings = {"rounds": rounds, "chunk": chunk, "buckets": LENGTH // chunk}
    config = ReformerConfig.model_construct(**settings)
    module = Reformer(site_of(LENGTH, causal=causal), config).double().eval()
    tokens = random(1, LENGTH, 8)
    theirs = published("reformer_pytorch").LSHAttention(
        bucket_size=chunk,
        n_hashes=rounds,
        causal=causal,
        allow_duplicate_attention=False,
        attend_across_buckets=False,
    )
    found = []
    for head in range(2):
        drawn = module.rotations[head].permute(1, 0, 2)[None]
        given = (module.split(each(tokens))[:, head] for each in (module.query, module.value))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn", lambda *_, drawn=drawn, **__: drawn)
            found.append(theirs.eval()(*given)[0])
    return module(tokens, tokens).output, module.merge(torch.stack(found, dim=1))


def of_routing() -> Pair:
    """The package adds 1e-5 to the divisor."""
    package = published("routing_transformer.routing_transformer")
    module, theirs = build("routing", clusters=5), package.KmeansAttention(5, 5, 2, 4)
    theirs.double().eval().kmeans.means.copy_(module.centres)
    theirs.kmeans.initted.fill_(True)
    tokens = random(2, LENGTH, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "scatter_mean", partial(package.scatter_mean, eps=1e-15))
        expected, _ = theirs(*parts(module, tokens))
    return module(tokens, tokens).output, module.merge(expected)


def of_sinkhorn() -> Pair:
    """The package mixes sorted keys instead of sorted values, so values are keys here."""
    package = published("sinkhorn_transformer.sinkhorn_transformer")
    module = build("sinkhorn", block=4, iterations=3, temperature=0.5)
    nn.init.normal_(module.sort.weight)
    query, key = random(2, 2, 2, 24, 4)
    sums = torch.cat([part.reshape(2, 2, 6, 4, 4).sum(dim=3) for part in (query, key)], dim=-1)
    scores = module.sort(module.hidden(sums).relu()) / 0.5
    moved = package.sinkhorn_sorting_operator(scores.flatten(0, 1), 3)
    theirs = package.SinkhornAttention(4, 8, 4, 2, 24).double().eval()
    theirs.sort_net.forward = lambda *_, **__: moved
    return module.mix(query, key, key, Call()).output, theirs(query, key, key)


CASES: dict[str, Callable[[], Pair]] = {
    "efficient": of_efficient,
    "linformer": of_linformer,
    "local": partial(of_local, causal=False),
    "local, causal": partial(of_local, causal=True),
    "performer": of_performer,
    "reformer": partial(of_reformer, 1, 4, causal=False),
    "reformer, three rounds": partial(of_reformer, 3, 4, causal=False),
    "reformer, causal": partial(of_reformer, 1, 12, causal=True),
    "rotary": of_rotary,
    "routing": of_routing,
    "sinkhorn": of_sinkhorn,
}


@pytest.mark.parametrize("name", CASES)
def test_layer_equals_the_published_package(name: str) -> None:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = CASES[name]()
    torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-6)
