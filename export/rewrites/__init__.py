"""The inference form of a trained model: a copy whose parts were replaced by equal, faster ones.

The models stay plain and readable; each rewrite says what it replaces and why it is equal, and is
tested by itself in float64. Together they leave no DFT, convolution, pooling or batch norm in the
graph: onnxruntime's DFT is slow and has no CUDA kernel, and without the others no cuDNN is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from torch import nn

from export.rewrites.auto_correlation import GramCorrelation
from export.rewrites.batch_norm import AffineNorm
from export.rewrites.convolution import NeighbourProjection
from export.rewrites.decomposition import MatrixAverage
from models.autoformer import Autoformer
from models.forecaster import Forecaster
from models.layers.auto_correlation import AutoCorrelation
from models.layers.decomposition import MovingAverage
from models.layers.embedding import TokenEmbedding
from models.layers.normalization import TokenBatchNorm
from models.patchtst import PatchTST

Part = TypeVar("Part", bound=nn.Module)


def inference_form(model: Forecaster) -> Forecaster:
    """Copy a model and rewrite the copy; the model itself is not touched."""
    form = copy.deepcopy(model).eval()
    _replace(form, TokenEmbedding, NeighbourProjection)
    _replace(form, TokenBatchNorm, AffineNorm)
    if isinstance(form, Autoformer):
        context, decoder = form.config.context, form.config.decoder_length
        for part, length in (
            (form.decomposition, context),
            (form.encoder_layers, context),
            (form.decoder_layers, decoder),
        ):
            _replace(part, MovingAverage, partial(MatrixAverage, length=length))
            _replace(part, AutoCorrelation, partial(GramCorrelation, length=length))
    if isinstance(form, PatchTST) and form.decomposition is not None:
        length = form.config.context
        _replace(form.decomposition, MovingAverage, partial(MatrixAverage, length=length))
    return form


def _replace(root: nn.Module, kind: type[Part], make: Callable[[Part], nn.Module]) -> None:
    """Replace every module of a kind below `root`."""
    for name, child in root.named_children():
        if isinstance(child, kind):
            setattr(root, name, make(child))
        else:
            _replace(child, kind, make)
