from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import Attended


class Handed(HeadedAttention):
    """What somebody may write: adds to the scores of the layer before."""

    @override
    def mix(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        inherited: Tensor | None,
        explain: bool,
    ) -> Attended:
        scores = query @ key.transpose(-1, -2)
        scores = scores if inherited is None else scores + inherited
        return Attended(scores.softmax(dim=-1) @ value, scores=scores)


def test_scores_of_the_layer_before_are_handed_to_those_who_mix() -> None:
    torch.manual_seed(0)
    layer, tokens = Handed(8, 2), torch.randn(1, 5, 8)
    first = layer(tokens, tokens)
    again = layer(tokens, tokens, inherited=first.scores)
    torch.testing.assert_close(again.scores, 2 * first.scores)
    assert not torch.allclose(first.output, again.output)
