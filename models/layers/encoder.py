"""Encoder layers, one after another."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from foretell.models.attention.mechanism import Attended


class Encoder(nn.ModuleList):
    """Layers that are called as `EncoderLayer` is, each on what the one before gives and hands on.

    Attributes:
        recomputes: Whether training keeps what goes from layer to layer alone, and computes what is
            inside of a layer once more when its gradients are due (Chen et al., 2016,
            arXiv:1604.06174): the same numbers in less memory and a third more time.
    """

    recomputes = False

    def forward(self, tokens: Tensor, *, explain: bool = False) -> list[Attended]:
        """Run them.

        Args:
            tokens: `[batch, time, d_model]`, or as the layers lay them out.
            explain: Whether evidence is asked for.

        Returns:
            What each layer gives: tokens of the same shape, and evidence.
        """
        attended = Attended(tokens)
        found = []
        for layer in self:
            if self.recomputes and self.training and not explain:
                attended = _recomputed(layer, attended)
            else:
                attended = layer(attended.output, inherited=attended.scores, explain=explain)
            found.append(attended)
        return found


def _recomputed(layer: nn.Module, attended: Attended) -> Attended:
    """What a layer gives, computed once more in the backward pass."""
    # Statistics and centres of clusters move with each call: once more it begins with the same, and
    # moves none.
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
