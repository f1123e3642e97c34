"""Tokens that meet in buckets, clusters and sorted blocks, against their papers in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from foretell.models.attention.zoo.reformer import Reformer, ReformerConfig
from foretell.models.attention.zoo.routing import Routing
from foretell.models.attention.zoo.sinkhorn import Sinkhorn, SinkhornConfig
from tests.models.attention.by_hand import Array, assert_gives, assert_map, merged, projected
from tests.models.attention.places import made, random, site_of
from tests.models.attention.published import published

CAUSAL_OR_NOT = pytest.mark.parametrize("causal", [False, True])


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def reformer(chunk: int, rounds: int, buckets: int, *, causal: bool = False) -> Reformer:
    torch.manual_seed(0)
    # Without validation: the config would refuse two buckets.
    config = ReformerConfig.model_construct(buckets=buckets, rounds=rounds, chunk=chunk)
    return Reformer(site_of(causal=causal), config).double().eval()


def reformer_map(query: Array, rotations: Array, chunk: int, *, causal: bool) -> Array:
    """The map by equations 3 to 6 of the paper, token by token."""
    n, features = query.shape
    key = unit(query)
    found = []
    for rotation in rotations:
        rotated = query @ rotation
        bucket = np.concatenate([rotated, -rotated], axis=1).argmax(axis=1)
        sorted_at = np.argsort(np.lexsort([np.arange(n), bucket]))
        at = sorted_at // (n if causal else chunk)
        found.append(
            [
                [j for j in range(n) if bucket[i] == bucket[j] and 0 <= at[i] - at[j] <= 1]
                for i in range(n)
            ]
        )
    weights = np.zeros((n, n))
    for i in range(n):
        scores = []
        for sets in found:
            for j in sets[i]:
                if causal and j > i:
                    continue
                times = sum(j in other[i] for other in found)
                off = 1e5 if i == j else np.log(times)
                scores.append((j, query[i] @ key[j] / features**0.5 - off))
        z = np.logaddexp.reduce([score for _, score in scores])
        for j, score in scores:
            weights[i, j] += np.exp(score - z)
    return weights


@CAUSAL_OR_NOT
@pytest.mark.parametrize(
    ("length", "chunk", "rounds", "buckets"),
    # Chunks that divide the length or do not, one that is longer, and chunks of 1.
    [(24, 4, 1, 4), (24, 4, 3, 6), (23, 5, 2, 4), (9, 32, 2, 4), (10, 1, 2, 4)],
)
def test_reformer_equals_its_formula(
    length: int, chunk: int, rounds: int, buckets: int, causal: bool
) -> None:
    module, tokens = reformer(chunk, rounds, buckets, causal=causal), random(1, length, 8)

    def weights(query: Array, _: Array, head: int) -> Array:
        return reformer_map(query, module.rotations[head].numpy(), chunk, causal=causal)

    assert_map(module, tokens, tokens, weights)


def test_reformer_shows_the_buckets_with_the_largest_scores() -> None:
    module, tokens = reformer(4, 3, 6), random(2, 24, 8)
    evidence = module(tokens, tokens, explain=True).evidence
    assert evidence.chosen.shape == (2, 2, 72, 1)
    assert torch.equal(evidence.chosen[..., 0], evidence.scores.argmax(dim=-1))
    query = module.split(module.query(tokens))
    rotated = query[:, 1] @ module.rotations[1, 2]
    torch.testing.assert_close(evidence.scores[:, 1, 48:], torch.cat([rotated, -rotated], dim=-1))


def test_reformer_has_an_even_number_of_buckets() -> None:
    with pytest.raises(ValidationError, match="expected an even number"):
        ReformerConfig(buckets=5)


def routing(clusters: int, decay: float = 0.9) -> Routing:
    module = made({"mechanism": "routing", "clusters": clusters, "decay": decay}, site_of())
    assert isinstance(module, Routing)
    return module


def routing_map(query: Array, key: Array, centres: Array, taken: int) -> Array:
    """The map by algorithm 1 of the paper, cluster by cluster."""
    n = len(query)
    total, times = np.zeros((n, n)), np.zeros(n)
    for centre in centres:
        queries = np.argsort(-unit(query) @ centre)[:taken]
        keys = np.argsort(-unit(key) @ centre)[:taken]
        for i in queries:
            shares = np.exp(query[i] @ key[keys].T / query.shape[1] ** 0.5)
            total[i, keys] += shares / shares.sum()
            times[i] += 1
    return total / np.maximum(times, 1)[:, None]


# Clusters that divide the length, that do not, one of all, and as many as tokens.
@pytest.mark.parametrize(("length", "clusters"), [(24, 4), (23, 5), (7, 1), (5, 5)])
def test_routing_equals_its_formula(length: int, clusters: int) -> None:
    module, tokens = routing(clusters), random(2, length, 8)

    def weights(query: Array, key: Array, head: int) -> Array:
        return routing_map(query, key, module.centres[head].numpy(), -(-length // clusters))

    assert_map(module, tokens, tokens, weights)


def test_routing_moves_its_centres_as_published_and_in_training_only() -> None:
    module = routing(6, decay=0.75)
    theirs = published("routing_transformer.routing_transformer").Kmeans(2, 4, 6, 0.75).double()
    theirs.means.copy_(module.centres)
    theirs.initted.fill_(True)
    # Tokens are few: some centres are nearest to no token.
    tokens, before = random(2, 3, 8), module.centres.clone()
    module(tokens, tokens)
    assert torch.equal(module.centres, before)
    module.train()
    for _ in range(3):
        both = torch.cat([module.split(each(tokens)) for each in (module.query, module.key)], dim=2)
        theirs(both, update_means=True)
        theirs.update()
        module(tokens, tokens)
        torch.testing.assert_close(module.centres, theirs.means, rtol=0, atol=1e-12)
    still = (module.centres == before).all(dim=-1)
    assert still.any()
    assert not still.all()


def test_routing_shows_the_tokens_with_the_largest_scores() -> None:
    module, tokens = routing(4), random(2, 24, 8)
    evidence = module(tokens, tokens, explain=True).evidence
    largest = evidence.scores.argsort(dim=-1, descending=True)[..., :6]
    assert torch.equal(evidence.chosen, largest)
    query, key, _ = projected(module, tokens, tokens)
    for at, part in ((1, query), (5, key)):
        expected = unit(part[:, 1]) @ module.centres[1, 1].numpy()
        np.testing.assert_allclose(evidence.scores[:, 1, at], expected, atol=1e-12)


def sinkhorn(length: int, block: int, *, causal: bool = False) -> Sinkhorn:
    settings = {"mechanism": "sinkhorn", "block": block, "iterations": 3, "temperature": 0.5}
    module = made(settings, site_of(length, causal=causal))
    assert isinstance(module, Sinkhorn)
    # Large weights, so that blocks differ more than at the start of a training.
    nn.init.normal_(module.sort.weight)
    return module


def permutation(module: Sinkhorn, head: int, sums: Array) -> Array:
    """Sums of blocks, by section 3.1 of the paper and, if causal, a variant of 3.3."""
    if module.causal:
        sums = np.cumsum(sums, axis=0) - sums
    net = {
        name: part[head].detach().numpy()
        for name, part in module.named_parameters()
        if name.startswith(("hidden", "sort"))
    }
    hidden = np.maximum(sums @ net["hidden.weight"] + net["hidden.bias"], 0)
    found = np.exp((hidden @ net["sort.weight"] + net["sort.bias"]) / 0.5)
    if not module.causal:
        for _ in range(3):
            found /= found.sum(axis=1, keepdims=True)
            found /= found.sum(axis=0, keepdims=True)
        return found
    found = np.tril(found, -1)
    for _ in range(3):
        found /= np.where(found > 0, np.cumsum(found, axis=0), 1)
        found /= np.maximum(found.sum(axis=1, keepdims=True), 1e-300)
    return found


def sorted_blocks(module: Sinkhorn, head: int, parts: Array, block: int) -> tuple[Array, Array]:
    """Output and map of a head, step by step."""
    query, key, value = parts
    n, features = query.shape
    count = -(-n // block)
    blocks = [range(u * block, min((u + 1) * block, n)) for u in range(count)]
    sums = [np.concatenate([query[each].sum(0), key[each].sum(0)]) for each in map(list, blocks)]
    moved = permutation(module, head, np.array(sums))
    output, weights = np.zeros((n, features)), np.zeros((n, n))
    for u, own in enumerate(blocks):
        for i in own:
            # Key, weight, and share of each step in it.
            read = [(key[j], 1.0, {j: 1.0}) for j in own if j <= i or not module.causal]
            for at in range(block if u or not module.causal else 0):
                of = {v * block + at: moved[u, v] for v in range(count) if v * block + at < n}
                share = sum(of.values()) / moved[u].sum()
                mixed = sum(part * key[j] for j, part in of.items())
                read.append((mixed / max(share, 1e-30), share, of))
            scores = np.array([query[i] @ each / features**0.5 for each, _, _ in read])
            shares = np.exp(scores - scores.max())
            shares /= shares @ [share for _, share, _ in read]
            for each, (_, _, of) in zip(shares, read, strict=True):
                for j, part in of.items():
                    weights[i, j] += each * part
                    output[i] += each * part * value[j]
    return output, weights


@CAUSAL_OR_NOT
# Blocks that divide the length, that do not, one of all, and one of each step.
@pytest.mark.parametrize(("length", "block"), [(24, 4), (23, 5), (7, 7), (5, 1)])
def test_sinkhorn_equals_its_formula(length: int, block: int, causal: bool) -> None:
    module, tokens = sinkhorn(length, block, causal=causal), random(1, length, 8)
    heads = np.stack(projected(module, tokens, tokens))[:, 0].swapaxes(0, 1)
    found = [sorted_blocks(module, head, parts, block) for head, parts in enumerate(heads)]
    mixed, maps = (np.stack(each)[None] for each in zip(*found, strict=True))
    assert_gives(module, tokens, tokens, merged(module, mixed), maps)


def test_sinkhorn_adds_gumbel_noise_in_training_only() -> None:
    module, sums = sinkhorn(2000, 1), torch.zeros(1, 2, 1, 8).double()
    module.config = module.config.model_copy(update={"iterations": 0})
    scores = module.sort(module.hidden(sums).relu())
    torch.testing.assert_close(module._permutation(sums).log() * 0.5, scores)
    module.train()
    noise = module._permutation(sums).log() * 0.5 - scores
    assert noise.mean().item() == pytest.approx(np.euler_gamma, abs=0.1)
    assert noise.var().item() == pytest.approx(np.pi**2 / 6, abs=0.2)


@CAUSAL_OR_NOT
def test_sinkhorn_learns_to_sort(causal: bool) -> None:
    module, tokens = sinkhorn(23, 5, causal=causal), random(1, 23, 8)
    module(tokens, tokens).output.square().sum().backward()
    # A bias is the same for a whole column, which is normalised.
    for part in (module.hidden.weight, module.hidden.bias, module.sort.weight):
        assert part.grad is not None
        assert part.grad.abs().max() > 1e-6


@pytest.mark.parametrize(
    ("length", "block"), [(1, 1), (5, 3), (7, 3), (24, 4), (42, 6), (96, 8), (97, 10), (720, 24)]
)
def test_sinkhorn_has_blocks_of_about_the_root_of_the_length(length: int, block: int) -> None:
    assert SinkhornConfig().build(site_of(length)).present.shape[1] == block
    assert SinkhornConfig(block=1000).build(site_of(length)).present.shape[1] == length
