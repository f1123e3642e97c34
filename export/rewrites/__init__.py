"""The inference form of a trained model: the same function, in operators that are fast to serve.

The models stay plain and readable; each rewrite says what it replaces and why it is equal, and is
tested by itself in float64. Together they leave no DFT, convolution, pooling or batch norm in the
graph: onnxruntime's DFT is slow and has no CUDA kernel, and without the others no cuDNN is needed.

Each file adds its rewrites to the registry in `lookup.py`. Most forms lay tensors out like the
modules they replace. Forms of a whole architecture may differ: inside of an encoder or a decoder
tokens are `[time * batch, d_model]`, time being the slow index ("time first"). This layout begins
with the embedding and ends with the projection or head. Such a form is used only if every part
within has one, by exact type.
"""

from __future__ import annotations

import copy
import pkgutil
from importlib import import_module

from torch import nn

from foretell.export.rewrites.lookup import rewritten
from foretell.models.forecaster import Forecaster


def inference_form(model: Forecaster) -> Forecaster:
    """Derive the form that is served from a copy of a model; the model itself is not touched."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    dtype = next(model.parameters()).dtype
    form = rewritten(copy.deepcopy(model).eval(), model.example_inputs(2, dtype))
    return form.eval()


def composition(model: Forecaster, form: Forecaster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Classes of a model's parts that a faster form replaced, and of parts that stayed."""
    before, after = _parts(model), _parts(form)
    return tuple(sorted(before - after)), tuple(sorted(before & after))


def _parts(model: Forecaster) -> set[str]:
    """Classes of a model's parts, without torch's own, dropout and lists."""
    parts = {
        type(part)
        for part in model.modules()
        if part is not model and not isinstance(part, nn.Dropout | nn.ModuleList)
    }
    return {part.__name__ for part in parts if not part.__module__.startswith("torch.")}
