"""Half precision in the large matrix products, where it costs little accuracy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from foretell.bundle.results import Precision
from foretell.export.errors import ExportError
from foretell.models.forecaster import Forecaster
from foretell.models.layers.feed_forward import FeedForward

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class Reduced(nn.Module):
    """Runs a module in half precision inside of a float32 model.

    Args:
        module: Module whose weights are converted.
        dtype: The half precision.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module.to(dtype)
        self.dtype = dtype

    def forward(self, *arguments: object, **options: object) -> object:
        """Run the module with float32 tensors in and out."""
        given = pytree.tree_map_only(Tensor, self._reduce, (arguments, options))
        found = self.module(*given[0], **given[1])
        return pytree.tree_map_only(Tensor, self._restore, found)

    def _reduce(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _restore(self, tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.is_floating_point() else tensor


def reduce_precision(form: Forecaster, precision: Precision) -> None:
    """Convert attention, feed-forward networks and the values of auto-correlations.

    These hold most multiplications. The following parts stay in float32:

    - the scaler, instance normalisation and the embeddings, where a large offset would leave no
      digits for the rest, and the softmax attention that reads embedded tokens, whose scores would
      even overflow in float16;
    - the residual sums, the norms, the series decompositions and the trend, which add up what the
      products leave;
    - the keys of auto-correlations, their correlation and the mixture by lags: there rounding
      decides which lags are kept;
    - the last product, whose rounding nothing after it averages out;
    - attention that has no faster form.

    `reducible` marks a form that is converted; `reducible_parts` names the parts that are.

    Args:
        form: An inference form; changed in place.
        precision: Precision of the products; float32 changes nothing.

    Raises:
        ExportError: no part of the model can be converted.
    """
    if precision == "float32":
        return
    dtype = DTYPES[precision]
    reduced = 0
    for parent in list(form.modules()):
        parts = getattr(parent, "reducible_parts", ())
        for name, module in list(parent.named_children()):
            reducible = type(module) is FeedForward or getattr(module, "reducible", False)
            if reducible or name in parts:
                if hasattr(module, "bounded"):
                    # The bound of scores holds in float32 only.
                    module.bounded = False  # type: ignore[assignment]
                setattr(parent, name, Reduced(module, dtype))
                reduced += 1
    if not reduced:
        raise ExportError(f"precision: no part of the model can run in {precision}")
