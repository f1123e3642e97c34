import pytest
import torch

from foretell.bundle.attention import Axis
from foretell.export.rewrites.lookup import Call
from foretell.export.rewrites.rotary import rewrite_rotary
from foretell.models.attention.mechanism import MECHANISMS, Site

D_MODEL, HEADS, BATCH = 16, 2, 3
STEPS = Axis(length=9, start=-9)
DECODER = Axis(length=6, start=-2)


@pytest.mark.parametrize(
    ("query", "key", "causal"),
    [(STEPS, STEPS, False), (STEPS, STEPS, True), (DECODER, STEPS, False)],
)
@pytest.mark.parametrize(
    "settings", [{}, {"pairs": "neighbours", "key_bias": False}, {"grid_columns": 4}]
)
def test_equals_the_plain_layer(settings, query, key, causal, float64, equal):
    torch.manual_seed(0)
    site = Site(D_MODEL, HEADS, query, key, causal=causal)
    plain = MECHANISMS.read({"mechanism": "rotary", **settings}).build(site).eval()
    plain.query.weight.data *= 3
    tokens = torch.randn(BATCH, query.length, D_MODEL)
    source = torch.randn(BATCH, key.length, D_MODEL)
    expected = plain(tokens, source, explain=True)
    form = rewrite_rotary(plain, Call((tokens.shape, source.shape), itself=False))
    found = form(tokens, source, explain=True)
    equal(found.output, expected.output)
    equal(found.evidence.weights, expected.evidence.weights)
    assert not form.attention.bounded
    # The layer itself stays as it was.
    equal(plain(tokens, source).output, expected.output)
