import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from foretell.models.attention.mechanism import Call
from foretell.models.attention.zoo.sinkhorn import Sinkhorn, SinkhornConfig
from tests.models.attention.places import PLACES, made, site_of
from tests.models.attention.published import published

Array = NDArray[np.float64]
# Blocks that divide the length, that do not, one of all, and one of each step.
SIZES = [(24, 4), (23, 5), (7, 7), (5, 1)]


def layer(length: int, block: int, *, causal: bool = False) -> Sinkhorn:
    settings = {"mechanism": "sinkhorn", "block": block, "iterations": 3, "temperature": 0.5}
    module = made(settings, site_of(length, causal=causal))
    assert isinstance(module, Sinkhorn)
    # Blocks shall differ more than at the start of a training.
    nn.init.normal_(module.sort.weight)
    return module


def heads_of(module: Sinkhorn, tokens: torch.Tensor) -> Array:
    parts = (module.query, module.key, module.value)
    return torch.stack([module.split(each(tokens))[0] for each in parts], 1).detach().numpy()


def permutation(module: Sinkhorn, head: int, sums: Array, *, causal: bool) -> Array:
    """Of the sums of blocks, by section 3.1 of the paper and, causal, ours of 3.3."""
    if causal:
        sums = np.cumsum(sums, axis=0) - sums
    net = {
        name: part[head].detach().numpy()
        for name, part in module.named_parameters()
        if name.startswith(("hidden", "sort"))
    }
    hidden = np.maximum(sums @ net["hidden.weight"] + net["hidden.bias"], 0)
    found = np.exp((hidden @ net["sort.weight"] + net["sort.bias"]) / 0.5)
    if not causal:
        for _ in range(3):
            found /= found.sum(axis=1, keepdims=True)
            found /= found.sum(axis=0, keepdims=True)
        return found
    found = np.tril(found, -1)
    for _ in range(3):
        found /= np.where(found > 0, np.cumsum(found, axis=0), 1)
        found /= np.maximum(found.sum(axis=1, keepdims=True), 1e-300)
    return found


def oracle(
    module: Sinkhorn, head: int, parts: Array, block: int, *, causal: bool
) -> tuple[Array, Array]:
    """The output and the map, step by step."""
    query, key, value = parts
    n, features = query.shape
    count = -(-n // block)
    blocks = [range(u * block, min((u + 1) * block, n)) for u in range(count)]
    sums = [np.concatenate([query[each].sum(0), key[each].sum(0)]) for each in map(list, blocks)]
    moved = permutation(module, head, np.array(sums), causal=causal)
    output, weights = np.zeros((n, features)), np.zeros((n, n))
    for u, own in enumerate(blocks):
        for i in own:
            # Key, value, how much it counts, and the steps that it is of.
            read = [(key[j], 1.0, {j: 1.0}) for j in own if j <= i or not causal]
            for at in range(block if u or not causal else 0):
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "block"), SIZES)
def test_by_the_formula(length: int, block: int, causal: bool) -> None:
    module = layer(length, block, causal=causal)
    tokens = torch.randn(1, length, 8, dtype=torch.float64)
    attended = module(tokens, tokens, explain=True)
    outputs = []
    for head, parts in enumerate(heads_of(module, tokens)):
        output, weights = oracle(module, head, parts, block, causal=causal)
        np.testing.assert_allclose(attended.evidence.weights[0, head].detach(), weights, atol=1e-10)
        outputs.append(output)
    merged = module.out(torch.from_numpy(np.concatenate(outputs, axis=1)))
    for explain in (True, False):
        output = module(tokens, tokens, explain=explain).output[0]
        torch.testing.assert_close(output, merged, rtol=0, atol=1e-10)


class Sorted(nn.Module):
    """Ours in the place of their net."""

    def __init__(self, moved: torch.Tensor) -> None:
        super().__init__()
        self.moved = moved

    def forward(self, *_: object, **__: object) -> torch.Tensor:
        return self.moved.flatten(0, 1)


def test_against_the_published_code() -> None:
    """Theirs mixes sorted keys instead of sorted values, so values are keys here."""
    package = published("sinkhorn_transformer.sinkhorn_transformer")
    module = layer(24, 4)
    query, key, sums = (torch.randn(2, 2, *each).double() for each in ((24, 4), (24, 4), (6, 8)))
    scores = module.sort(module.hidden(sums).relu()) / 0.5
    expected = package.sinkhorn_sorting_operator(scores.flatten(0, 1), 3)
    moved = module._permutation(sums)
    torch.testing.assert_close(moved.flatten(0, 1), expected, rtol=0, atol=1e-12)

    theirs = package.SinkhornAttention(4, 8, 4, 2, 24).double().eval()
    found = module.mix(query, key, key, Call()).output
    both = torch.cat([part.reshape(2, 2, 6, 4, 4).sum(dim=3) for part in (query, key)], dim=-1)
    theirs.sort_net = Sorted(module._permutation(both))
    torch.testing.assert_close(found, theirs(query, key, key), rtol=0, atol=1e-12)


def test_a_column_is_normalised_last() -> None:
    module = layer(24, 4)
    moved = module._permutation(torch.randn(1, 2, 6, 8).double())
    torch.testing.assert_close(moved.sum(dim=-2), torch.ones(1, 2, 6).double())
    module.config = module.config.model_copy(update={"iterations": 200})
    moved = module._permutation(torch.randn(1, 2, 6, 8).double())
    torch.testing.assert_close(moved.sum(dim=-1), torch.ones(1, 2, 6).double())


def test_noise_is_for_training_only() -> None:
    module = layer(24, 4)
    tokens = torch.randn(1, 24, 8).double()
    assert torch.equal(module(tokens, tokens).output, module(tokens, tokens).output)
    module.train()
    first, second = (module._permutation(torch.zeros(1, 2, 6, 8).double()) for _ in range(2))
    assert not torch.allclose(first, second)


def test_the_noise_has_the_mean_of_a_gumbel_distribution() -> None:
    module = layer(2000, 1)
    module.train()
    module.config = module.config.model_copy(update={"iterations": 0})
    noise = module._permutation(torch.zeros(1, 2, 1, 8).double()).log() * 0.5
    noise -= module.sort(module.hidden(torch.zeros(1, 2, 1, 8).double()).relu())
    assert noise.mean().item() == pytest.approx(np.euler_gamma, abs=0.1)
    assert noise.var().item() == pytest.approx(np.pi**2 / 6, abs=0.2)


@pytest.mark.parametrize("causal", [False, True])
def test_the_net_learns(causal: bool) -> None:
    module = layer(23, 5, causal=causal)
    tokens = torch.randn(1, 23, 8).double()
    module(tokens, tokens).output.square().sum().backward()
    # A bias is the same for a whole column, which is normalised.
    for part in (module.hidden.weight, module.hidden.bias, module.sort.weight):
        assert part.grad is not None
        assert part.grad.abs().max() > 1e-6


@pytest.mark.parametrize(
    ("length", "block"), [(1, 1), (5, 3), (7, 3), (24, 4), (42, 6), (96, 8), (97, 10), (720, 24)]
)
def test_a_block_is_about_the_root_of_the_length(length: int, block: int) -> None:
    assert SinkhornConfig().build(site_of(length)).present.shape[1] == block
    assert SinkhornConfig(block=1000).build(site_of(length)).present.shape[1] == length


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"^attention: sinkhorn has the same blocks for queries"):
        SinkhornConfig().check(PLACES["cross"])
