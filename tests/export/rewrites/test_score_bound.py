import math

import pytest
import torch
from torch import nn

from foretell.export.rewrites.score_bound import score_bound
from foretell.models.attention.softmax import MultiHeadAttention
from tests.models.attention.places import multi_head

D_MODEL = 8


def norm() -> nn.LayerNorm:
    made = nn.LayerNorm(D_MODEL)
    nn.init.uniform_(made.weight, -2, 2)
    nn.init.normal_(made.bias)
    return made


def largest_score(plain: MultiHeadAttention, tokens: torch.Tensor, source: torch.Tensor) -> float:
    split = (-1, plain.heads, D_MODEL // plain.heads)
    query = plain.query(tokens).reshape(split)
    key = (source @ plain.key.weight.T).reshape(split)
    scores = torch.einsum("ihf,jhf->hij", query, key) * query.shape[-1] ** -0.5
    return float(scores.detach().abs().max())


def test_no_score_is_larger(float64):
    torch.manual_seed(0)
    plain, origin = multi_head(D_MODEL, 2), norm()
    bound = score_bound(plain, origin)
    for scale in (1e-3, 1, 1e3):
        # Spikes are as far as a layer norm gets from its mean.
        series = torch.cat([torch.randn(2000, D_MODEL), torch.eye(D_MODEL), -torch.eye(D_MODEL)])
        assert largest_score(plain, *2 * (origin(scale * series),)) <= bound


@pytest.mark.parametrize("bias", [False, True])
def test_the_largest_score_is_reached(bias, float64):
    """One head, no bias: the bound is the largest singular value, which aligned vectors reach."""
    torch.manual_seed(1)
    plain = multi_head(D_MODEL, 1, without=[] if bias else ["query"])
    if bias:
        nn.init.zeros_(plain.query.bias)
    plain_norm = nn.LayerNorm(D_MODEL, eps=1e-12)
    centre = torch.eye(D_MODEL) - 1 / D_MODEL
    left, _, right = torch.linalg.svd(centre @ plain.query.weight.T @ plain.key.weight @ centre)
    found = largest_score(plain, plain_norm(left[:, :1].T), plain_norm(right[:1]))
    assert math.isclose(found, score_bound(plain, plain_norm), rel_tol=1e-6)
