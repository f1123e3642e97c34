"""Faster forms of modules, looked up by their exact type.

A module without one, such as a subclass of a module that has one, stays as it is: it is exported
plainly and verified all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.models.layers.window_norms import WindowNorm

M = TypeVar("M", bound=nn.Module)


class Call(NamedTuple):
    """Properties of a module's arguments.

    Attributes:
        shapes: Shapes of the tensors among the arguments, batch first.
        itself: Whether the first two tensors are the same, as in self-attention.
        dtype: Type of the first tensor.
    """

    shapes: tuple[torch.Size, ...]
    itself: bool
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Call:
        """Make a call from the tensors among the arguments, if any."""
        itself = len(tensors) > 1 and tensors[0] is tensors[1]
        shapes = tuple(one.shape for one in tensors)
        return cls(shapes, itself, tensors[0].dtype) if tensors else cls(shapes, itself)


# None if this module has no faster form after all.
Rewrite = Callable[[Any, Call], nn.Module | None]

_REWRITES: dict[type[nn.Module], Rewrite] = {}


def rewrites(kind: type[M]) -> Callable[[Callable[[M, Call], nn.Module | None]], Any]:
    """Decorator of a function that makes the faster form of a module.

    The form is called like the module and returns the same.

    Args:
        kind: The exact type of the module.
    """

    def add(rewrite: Callable[[M, Call], nn.Module | None]) -> Callable[[M, Call], Any]:
        assert kind not in _REWRITES  # noqa: S101 - a fault in the file of the second one
        _REWRITES[kind] = rewrite
        return rewrite

    return add


def form_of(kind: type[nn.Module]) -> Callable[[type[M]], type[M]]:
    """Decorator of a class that is the faster form, made from the module alone."""

    def add(form: type[M]) -> type[M]:
        rewrites(kind)(lambda plain, _: form(plain))
        return form

    return add


def all_of(layers: Iterable[nn.Module], names: str, kind: type[nn.Module]) -> bool:
    """Whether the parts with these names have exactly this type in all layers."""
    return all(type(getattr(layer, name)) is kind for layer in layers for name in names.split())


def replace(module: nn.Module, **parts: nn.Module) -> None:
    """Replace parts of a module by faster ones; its forward stays."""
    for name, part in parts.items():
        module.register_module(name, part)


def rewritten(model: Forecaster, inputs: Inputs) -> Forecaster:
    """Replace modules by faster forms.

    Args:
        model: Model, which is changed in place.
        inputs: Example inputs.
    """
    calls = _observe(model, inputs)

    def visit(module: nn.Module) -> nn.Module:
        rewrite = _REWRITES.get(type(module))
        if rewrite is not None and module in calls:
            form = rewrite(module, calls[module])
            if form is not None:
                return form
        for name, child in list(module.named_children()):
            setattr(module, name, visit(child))
        return module

    form = cast("Forecaster", visit(model))
    if form.window_norm is not None:
        # The norm around an architecture, whatever form the architecture has.
        form.window_norm = cast("WindowNorm", visit(form.window_norm))
    return form


def _observe(model: Forecaster, inputs: Inputs) -> dict[nn.Module, Call]:
    """The call of each module that is always called in the same way."""
    several: set[nn.Module] = set()
    calls: dict[nn.Module, Call] = {model: Call.of([one for one in inputs if one is not None])}

    def note(module: nn.Module, given: tuple[object, ...]) -> None:
        call = Call.of([one for one in given if isinstance(one, Tensor)])
        if calls.setdefault(module, call) != call:
            several.add(module)

    hooks: list[RemovableHandle] = [
        module.register_forward_pre_hook(note) for module in model.modules()
    ]
    with torch.inference_mode():
        model.explain(*inputs)
    for hook in hooks:
        hook.remove()
    return {module: call for module, call in calls.items() if module not in several}
