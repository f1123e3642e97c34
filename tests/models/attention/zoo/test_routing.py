from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foretell.models.attention.zoo.routing import Routing, RoutingConfig
from tests.models.attention.places import PLACES, made, site_of
from tests.models.attention.published import published

Array = NDArray[np.float64]


def layer(clusters: int, decay: float = 0.9) -> Routing:
    module = made({"mechanism": "routing", "clusters": clusters, "decay": decay}, site_of())
    assert isinstance(module, Routing)
    return module


def heads_of(module: Routing, tokens: torch.Tensor) -> tuple[Array, Array, Array]:
    parts = (module.query, module.key, module.value)
    query, key, value = (module.split(each(tokens)).detach().numpy() for each in parts)
    return query, key, value


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def oracle(query: Array, key: Array, centres: Array, taken: int) -> Array:
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
def test_by_the_formula(length: int, clusters: int) -> None:
    module = layer(clusters)
    tokens = torch.randn(2, length, 8, dtype=torch.float64)
    attended = module(tokens, tokens, explain=True)
    query, key, value = heads_of(module, tokens)
    expected = np.empty_like(value)
    for i in range(2):
        for head, centres in enumerate(module.centres.numpy()):
            weights = oracle(query[i, head], key[i, head], centres, -(-length // clusters))
            found = attended.evidence.weights[i, head].detach()
            np.testing.assert_allclose(found, weights, atol=1e-10)
            expected[i, head] = weights @ value[i, head]
    merged = module.merge(torch.from_numpy(expected))
    for explain in (True, False):
        output = module(tokens, tokens, explain=explain).output
        torch.testing.assert_close(output, merged, rtol=0, atol=1e-10)


def test_what_no_cluster_takes_reads_nothing() -> None:
    module = layer(4)
    tokens = torch.randn(1, 24, 8, dtype=torch.float64)
    attended = module(tokens, tokens, explain=True)
    read = attended.evidence.weights.sum(dim=-1)
    chosen = attended.evidence.chosen[:, :, :4].flatten(2)
    taken = torch.zeros_like(read).scatter(2, chosen, 1)
    torch.testing.assert_close(read, taken)
    assert 0 < taken.mean() < 1


def test_against_the_published_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs adds 1e-5 to what it divides by."""
    package = published("routing_transformer.routing_transformer")
    monkeypatch.setattr(package, "scatter_mean", partial(package.scatter_mean, eps=1e-15))
    module, theirs = layer(5), package.KmeansAttention(5, 5, 2, 4).double().eval()
    theirs.kmeans.means.copy_(module.centres)
    theirs.kmeans.initted.fill_(True)
    tokens = torch.randn(2, 24, 8, dtype=torch.float64)
    parts = [module.split(each(tokens)) for each in (module.query, module.key, module.value)]
    expected, _ = theirs(*parts)
    torch.testing.assert_close(
        module(tokens, tokens).output, module.merge(expected), rtol=0, atol=1e-10
    )


def test_centres_move_as_published_and_in_training_only() -> None:
    module = layer(6, decay=0.75)
    theirs = published("routing_transformer.routing_transformer").Kmeans(2, 4, 6, 0.75).double()
    theirs.means.copy_(module.centres)
    theirs.initted.fill_(True)
    # Few tokens: some centres are nearest to none of them.
    tokens = torch.randn(2, 3, 8, dtype=torch.float64)
    before = module.centres.clone()
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


def test_the_chosen_have_the_largest_scores() -> None:
    module = layer(4)
    tokens = torch.randn(2, 24, 8, dtype=torch.float64)
    evidence = module(tokens, tokens, explain=True).evidence
    largest = evidence.scores.argsort(dim=-1, descending=True)[..., :6]
    assert torch.equal(evidence.chosen, largest)
    query, key, _ = heads_of(module, tokens)
    for at, part in ((1, query), (5, key)):
        expected = unit(part[:, 1]) @ module.centres[1, 1].numpy()
        np.testing.assert_allclose(evidence.scores[:, 1, at], expected, atol=1e-12)


@pytest.mark.parametrize(("length", "clusters", "taken"), [(5, 2, 3), (42, 6, 7), (720, 27, 27)])
def test_clusters_are_the_root_of_the_length(length: int, clusters: int, taken: int) -> None:
    (stage,) = RoutingConfig().describe("stage", site_of(length))
    assert [output.shape for output in stage.outputs[1:]] == [
        (2, 2 * clusters, taken),
        (2, 2 * clusters, length),
    ]


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"^attention: routing has the same clusters for queries"):
        RoutingConfig().check(PLACES["cross"])
    with pytest.raises(ValueError, match=r"^clusters: expected at most the length, 24$"):
        RoutingConfig(clusters=25).check(PLACES["encoder"])
    RoutingConfig(clusters=24).check(PLACES["encoder"])
