"""Half precision where it costs little: in the large matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from foretell.bundle.manifest import Precision
from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.auto_correlation import FoldedAutoCorrelation
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.export.rewrites.patchtst import FlatPatchEncoder
from foretell.models.forecaster import Forecaster
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.patchtst import PatchTST
from foretell.models.transformer import Transformer

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
ATTENTIONS = (TimeFirstAttention, MergedAttention)


class Reduced(nn.Module):
    """Runs a module in half precision amid float32.

    Args:
        module: Its weights are converted.
        dtype: The half precision.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module.to(dtype)
        self.dtype = dtype

    def forward(self, *arguments: object, **options: object) -> object:
        """As the module, with float32 tensors in and out."""
        given = pytree.tree_map_only(Tensor, self._reduce, (arguments, options))
        found = self.module(*given[0], **given[1])
        return pytree.tree_map_only(Tensor, Tensor.float, found)

    def _reduce(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype)


def reduce_precision(form: Forecaster, precision: Precision) -> None:
    """Convert attention, feed-forward networks and the values of auto-correlations.

    These hold most multiplications. In float32 stay

    - the scaler, instance normalisation and the embeddings, where a large offset would leave no
      digits for the rest, and with them the softmax attention that reads tokens as they were
      embedded: its scores would even overflow in float16;
    - the residual sums, the norms, the series decompositions and the trend, which add up what the
      products leave;
    - the keys of auto-correlations, their correlation and the mixture by lags: there rounding
      decides which lags are kept;
    - the last product, whose rounding nothing after it averages out.

    Args:
        form: An inference form; changed in place.
        precision: Of the products; float32 changes nothing.
    """
    if precision == "float32":
        return
    dtype = DTYPES[precision]
    kept = _reading_embeddings(form)
    for parent in list(form.modules()):
        for name, module in list(parent.named_children()):
            values = isinstance(parent, FoldedAutoCorrelation) and name == "value"
            attends = isinstance(module, ATTENTIONS) and module not in kept
            if isinstance(module, ATTENTIONS) and attends:
                # The bound is one for float32.
                module.bounded = False
            if values or attends or isinstance(module, FeedForward):
                setattr(parent, name, Reduced(module, dtype))


def _reading_embeddings(form: Forecaster) -> list[nn.Module]:
    """The softmax attentions that read tokens as they were embedded."""
    if isinstance(form, Transformer):
        encoder, decoder = form.encoder_layers[0], form.decoder_layers[0]
        return [cast("nn.Module", encoder.attention), cast("nn.Module", decoder.self_attention)]
    if isinstance(form, PatchTST) and form.config.instance_norm is None:
        branches = cast("Iterable[FlatPatchEncoder]", form.branches)
        return [cast("nn.Module", branch.layers[0].attention) for branch in branches]
    return []
