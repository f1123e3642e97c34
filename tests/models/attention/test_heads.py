from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import Attended, Call
from tests.models.attention.places import site_of


class Handed(HeadedAttention):
    """What somebody may write: adds to the scores of the layer before."""

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        scores = query @ key.transpose(-1, -2)
        scores = scores if call.inherited is None else scores + call.inherited
        return Attended(scores.softmax(dim=-1) @ value, scores=scores)


def test_scores_of_the_layer_before_are_handed_to_the_next() -> None:
    torch.manual_seed(0)
    layer, tokens = Handed(site_of(5)), torch.randn(1, 5, 8)
    first = layer(tokens, tokens)
    again = layer(tokens, tokens, inherited=first.scores)
    torch.testing.assert_close(again.scores, 2 * first.scores)
    assert not torch.allclose(first.output, again.output)
