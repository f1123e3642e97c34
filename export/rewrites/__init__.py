"""The inference form of a trained model: the same function, in operators that are fast to serve.

The models stay plain and readable; each rewrite says what it replaces and why it is equal, and is
tested by itself in float64. Together they leave no DFT, convolution, pooling or batch norm in the
graph: onnxruntime's DFT is slow and has no CUDA kernel, and without the others no cuDNN is needed.
"""

from __future__ import annotations

import copy

from foretell.export.rewrites.autoformer import rewrite_autoformer
from foretell.export.rewrites.patchtst import rewrite_patchtst
from foretell.export.rewrites.transformer import rewrite_transformer
from foretell.models.autoformer import Autoformer
from foretell.models.forecaster import Forecaster
from foretell.models.patchtst import PatchTST
from foretell.models.transformer import Transformer


def inference_form(model: Forecaster) -> Forecaster:
    """Derive the form that is served from a copy of a model; the model itself is not touched.

    Raises:
        TypeError: the model is of no architecture.
    """
    form = copy.deepcopy(model).eval()
    match form:
        case Autoformer():
            rewrite_autoformer(form)
        case PatchTST():
            rewrite_patchtst(form)
        case Transformer():
            rewrite_transformer(form)
        case _:
            raise TypeError(f"{type(model).__name__} is a model of no architecture")
    return form.eval()
