"""Which modules have a faster form, looked up by their exact type.

A module without one, and so a subclass of one that has it, stays as it is: it is exported plainly
and verified all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from foretell.models.forecaster import Forecaster
from foretell.models.layers.window_norms import WindowNorm

M = TypeVar("M", bound=nn.Module)


class Call(NamedTuple):
    """How a module is called.

    Attributes:
        shapes: Of the tensors among its arguments, batch first.
        itself: Whether the first two are one tensor, as those of self-attention are.
        dtype: Of the first of them.
    """

    shapes: tuple[torch.Size, ...]
    itself: bool
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Call:
        """By the tensors among the arguments, of which there may be none."""
        itself = len(tensors) > 1 and tensors[0] is tensors[1]
        shapes = tuple(one.shape for one in tensors)
        return cls(shapes, itself, tensors[0].dtype) if tensors else cls(shapes, itself)


# None where this one has no faster form after all.
Rewrite = Callable[[Any, Call], nn.Module | None]

_REWRITES: dict[type[nn.Module], Rewrite] = {}


def rewrites(kind: type[M]) -> Callable[[Callable[[M, Call], nn.Module | None]], Any]:
    """Decorator of a function that makes the faster form of a module.

    The form is called as the module is, and gives the same.

    Args:
        kind: The exact type of the module.
    """

    def add(rewrite: Callable[[M, Call], nn.Module | None]) -> Callable[[M, Call], Any]:
        assert kind not in _REWRITES  # noqa: S101 - a fault in the file of the second one
        _REWRITES[kind] = rewrite
        return rewrite

    return add


def form_of(kind: type[nn.Module]) -> Callable[[type[M]], type[M]]:
    """Decorator of a class that is the faster form, made of the module alone."""

    def add(form: type[M]) -> type[M]:
        rewrites(kind)(lambda plain, _: form(plain))
        return form

    return add


def all_of(layers: Iterable[nn.Module], names: str, kind: type[nn.Module]) -> bool:
    """Whether the parts of all layers with these names are of exactly this type."""
    return all(type(getattr(layer, name)) is kind for layer in layers for name in names.split())


def replace(module: nn.Module, **parts: nn.Module) -> None:
    """Put faster parts in the place of a module's own; its forward stays."""
    for name, part in parts.items():
        module.register_module(name, part)


def rewritten(model: Forecaster, inputs: tuple[Tensor, ...]) -> Forecaster:
    """Put faster forms in the place of modules.

    Args:
        model: Changed, with all that is in it.
        inputs: An example.
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
        # What stands around an architecture, whatever the form of that.
        form.window_norm = cast("WindowNorm", visit(form.window_norm))
    return form


def _observe(model: Forecaster, inputs: tuple[Tensor, ...]) -> dict[nn.Module, Call]:
    """How each module is called that is always called so."""
    several: set[nn.Module] = set()
    calls: dict[nn.Module, Call] = {model: Call.of(inputs)}

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
