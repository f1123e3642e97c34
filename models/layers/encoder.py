"""Encoder layers, one after another."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from foretell.models.attention.mechanism import Attended


class Encoder(nn.ModuleList):
    """Layers like `EncoderLayer`, each of which reads the output and scores of the one before.

    Attributes:
        recomputes: Whether training keeps only tensors between layers, and recomputes the inside of
            a layer for its gradients (Chen et al., 2016, arXiv:1604.06174). The numbers are the
            same, in less memory and a third more time.
        parts: Number of parts of a batch that are recomputed one after another, if each row of a
            batch is computed from that row alone. The numbers are the same, except for rounding and
            dropout.
    """

    recomputes = False
    parts = 1

    def forward(self, tokens: Tensor, *, explain: bool = False) -> list[Attended]:
        """Run the layers.

        Args:
            tokens: `[batch, time, d_model]`, or as the layers lay them out.
            explain: Whether to return evidence.

        Returns:
            Results of each layer: tokens of the same shape, and evidence.
        """
        attended = Attended(tokens)
        found = []
        for layer in self:
            if self.recomputes and self.training and not explain:
                if self.parts > 1 and getattr(layer, "is_by_row", False):
                    attended = _in_parts(layer, attended, self.parts)
                else:
                    attended = _recomputed(layer, attended)
            else:
                attended = layer(attended.output, inherited=attended.scores, explain=explain)
            found.append(attended)
        return found


def _in_parts(layer: nn.Module, attended: Attended, parts: int) -> Attended:
    """Results of a layer, which is run and recomputed in parts of the batch."""
    outputs = attended.output.chunk(parts)
    scores = [None] * len(outputs) if attended.scores is None else attended.scores.chunk(parts)
    pairs = zip(outputs, scores, strict=True)
    found = [_recomputed(layer, Attended(output, scores=own)) for output, own in pairs]
    handed_on = [part.scores for part in found if part.scores is not None]
    return Attended(
        torch.cat([part.output for part in found]),
        scores=torch.cat(handed_on) if handed_on else None,
    )


def _recomputed(layer: nn.Module, attended: Attended) -> Attended:
    """Results of a layer, which is computed again in the backward pass."""
    # Statistics and centres of clusters move with each call. The second run begins with the same
    # values and moves none.
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    was_run = False

    def run(tokens: Tensor, inherited: Tensor | None) -> Attended:
        nonlocal was_run
        buffers = before if was_run else {}
        was_run = True
        return cast(
            "Attended", functional_call(layer, buffers, (tokens,), {"inherited": inherited})
        )

    found = checkpoint(run, attended.output, attended.scores, use_reentrant=False)
    return cast("Attended", found)
