import torch

from foretell.export.rewrites.transformer import TimeFirstProjection
from tests.export.rewrites.test_attention import time_first

STEPS, CHANNELS, D_MODEL = 9, 4, 8


def test_projection(float64, equal):
    plain = torch.nn.Linear(D_MODEL, CHANNELS)
    tokens = torch.randn(3, STEPS, D_MODEL)
    equal(TimeFirstProjection(plain, STEPS)(time_first(tokens)), plain(tokens))
