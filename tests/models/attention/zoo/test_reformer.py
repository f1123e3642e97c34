import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foretell.models.attention.evidence import Dense
from foretell.models.attention.zoo.reformer import Reformer, ReformerConfig
from tests.models.attention.places import PLACES, site_of
from tests.models.attention.published import published

Array = NDArray[np.float64]
# Length, chunk, rounds, buckets: chunks that do and do not fit, one that holds all, one of 1.
SIZES = [(24, 4, 1, 4), (24, 4, 3, 6), (23, 5, 2, 4), (9, 32, 2, 4), (10, 1, 2, 4)]


def layer(chunk: int, rounds: int, buckets: int, *, causal: bool = False) -> Reformer:
    torch.manual_seed(0)
    # Two buckets too, which the config refuses.
    config = ReformerConfig.model_construct(buckets=buckets, rounds=rounds, chunk=chunk)
    return Reformer(site_of(causal=causal), config).double().eval()


def heads_of(module: Reformer, tokens: torch.Tensor) -> list[tuple[Array, Array, Array]]:
    """Query, value and rotations of each head of the only window."""
    parts = (module.split(each(tokens))[0] for each in (module.query, module.value))
    arrays = [part.detach().numpy() for part in parts]
    return list(zip(*arrays, module.rotations.numpy(), strict=True))


def oracle(query: Array, rotations: Array, chunk: int, *, causal: bool) -> Array:
    """The map by equations 3 to 6 of the paper, token by token."""
    n, features = query.shape
    key = query / np.linalg.norm(query, axis=1, keepdims=True)
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "chunk", "rounds", "buckets"), SIZES)
def test_by_the_formula(length: int, chunk: int, rounds: int, buckets: int, causal: bool) -> None:
    module = layer(chunk, rounds, buckets, causal=causal)
    tokens = torch.randn(1, length, 8, dtype=torch.float64)
    attended = module(tokens, tokens, explain=True)
    mixed = []
    for head, (query, value, rotations) in enumerate(heads_of(module, tokens)):
        weights = oracle(query, rotations, chunk, causal=causal)
        np.testing.assert_allclose(attended.evidence.weights[0, head].detach(), weights, atol=1e-10)
        mixed.append(weights @ value)
    expected = module.out(torch.from_numpy(np.concatenate(mixed, axis=1)))
    for explain in (True, False):
        output = module(tokens, tokens, explain=explain).output[0]
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("rounds", "chunk", "causal"), [(1, 4, False), (3, 4, False), (1, 12, True)]
)
def test_against_the_published_code(
    monkeypatch: pytest.MonkeyPatch, rounds: int, chunk: int, causal: bool
) -> None:
    """Theirs also counts pairs once and leaves other buckets out if told to.

    Causal, theirs cuts chunks, which is compared where two of them hold all.
    """
    module = layer(chunk, rounds, 24 // chunk, causal=causal)
    tokens = torch.randn(1, 24, 8, dtype=torch.float64)
    module.out = torch.nn.Identity()
    theirs = published("reformer_pytorch").LSHAttention(
        bucket_size=chunk,
        n_hashes=rounds,
        causal=causal,
        allow_duplicate_attention=False,
        attend_across_buckets=False,
    )
    for head, (query, value, rotations) in enumerate(heads_of(module, tokens)):
        drawn = torch.from_numpy(rotations).permute(1, 0, 2)[None]
        monkeypatch.setattr(torch, "randn", lambda *_, drawn=drawn, **__: drawn)
        expected, _, _ = theirs.eval()(*(torch.from_numpy(each)[None] for each in (query, value)))
        output = module(tokens, tokens).output[..., 4 * head : 4 * head + 4]
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-8)


def test_the_buckets_are_those_with_the_largest_scores() -> None:
    module = layer(4, 3, 6)
    tokens = torch.randn(2, 24, 8, dtype=torch.float64)
    evidence = module(tokens, tokens, explain=True).evidence
    assert isinstance(evidence, Dense)
    assert evidence.chosen is not None
    assert evidence.scores is not None
    assert evidence.chosen.shape == (2, 2, 72, 1)
    assert torch.equal(evidence.chosen[..., 0], evidence.scores.argmax(dim=-1))
    query = module.split(module.query(tokens))
    rotated = query[:, 1] @ module.rotations[1, 2]
    found = evidence.scores[:, 1, 48:]
    torch.testing.assert_close(found, torch.cat([rotated, -rotated], dim=-1))


def test_a_token_alone_in_its_buckets_reads_itself() -> None:
    module = layer(4, 2, 4)
    with torch.no_grad():
        module.query.weight.copy_(torch.eye(8))
        module.query.bias.zero_()
    # The first token is the opposite of the others in every hash.
    tokens = torch.cat([-torch.ones(1, 1, 8), torch.ones(1, 6, 8)], dim=1).double()
    weights = module(tokens, tokens, explain=True).evidence.weights[0]
    expected = torch.eye(7, dtype=torch.float64)[0]
    torch.testing.assert_close(weights[:, 0], expected.expand(2, 7), rtol=0, atol=0)
    assert not weights[:, 1:].diagonal(offset=1, dim1=1, dim2=2).any()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 7, dtype=torch.float64))


@pytest.mark.parametrize(("length", "buckets"), [(5, 4), (96, 4), (336, 10), (720, 22)])
def test_buckets_are_as_many_as_chunks(length: int, buckets: int) -> None:
    (stage,) = ReformerConfig().describe("stage", site_of(length))
    assert [output.shape for output in stage.outputs[1:]] == [
        (2, 2 * length, 1),
        (2, 2 * length, buckets),
    ]


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"^attention: reformer has one vector for query and key"):
        ReformerConfig().check(PLACES["cross"])
    with pytest.raises(ValueError, match=r"^buckets: expected at most 699050 here"):
        ReformerConfig(buckets=699052).check(PLACES["encoder"])
    ReformerConfig(buckets=699050).check(PLACES["encoder"])
    with pytest.raises(ValueError, match="expected an even number"):
        ReformerConfig(buckets=5)
