"""Reading of published checkpoint files without running code in them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from foretell.importers.errors import ImporterError

# Zip archives since torch 1.6; pickles before, the first of which is a magic number.
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# Names of a state_dict next to that of an optimizer, in order of preference.
_HOLDERS = ("state_dict", "model_state_dict", "model")
_NO_HOLDER = re.compile("optim|sched|scaler", re.IGNORECASE)
_HOW_TO_SAVE = "save it with torch.save(model.state_dict(), FILE)"


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file that `torch.save(model.state_dict(), path)` wrote.

    Returns:
        The state_dict on the CPU, with tensors as `plain` returns them.

    Raises:
        ImporterError: the file is missing, empty, damaged, not from PyTorch, holds anything but
            tensors, or would run code.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_LEGACY))
    except OSError as error:
        raise ImporterError(f"{path}: {error.strerror}") from None
    if not start:
        raise ImporterError(f"{path}: the file is empty")
    if not start.startswith((_ZIP, _PICKLE)):
        raise ImporterError(f"{path}: not a PyTorch file; {_HOW_TO_SAVE}")
    if start.startswith(_PICKLE) and not start.startswith(_LEGACY):
        raise ImporterError(
            f"{path}: refused: a pickle may run code, and a checkpoint needs tensors only; if you "
            f"trust it, load it where it was made and {_HOW_TO_SAVE}"
        )
    # Warnings of torch are in the errors below, or do not concern weights.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch.load raise nearly anything
            raise ImporterError(f"{path}: {_explain(error)}") from None
        return plain(path, _tensors(path, _state_in(path, loaded)))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, on the CPU, as `plain` returns them.

    Raises:
        ImporterError: the file is damaged, or a tensor is not supported.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError, KeyError) as error:
        raise ImporterError(f"{path}: damaged or cut off: {error}") from None
    return plain(path, found)


def plain(path: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as dense ones of real numbers within float32.

    Sparse tensors and floats of eight bits are converted without loss.

    Raises:
        ImporterError: a tensor is of another kind or not finite; the message names it.
    """
    return {key: _plain(f"{path}: {key}", tensor) for key, tensor in state.items()}


def _plain(name: str, tensor: Tensor) -> Tensor:
    kind = str(tensor.dtype).removeprefix("torch.")
    for is_so, what in (
        (tensor.is_meta, "has a shape and no values: it was saved on the device meta"),
        (tensor.is_nested, "is nested; save it as a tensor of one shape"),
        (
            tensor.is_quantized,
            f"is quantised ({kind}); save the model as it was before it was quantised",
        ),
        (tensor.is_complex(), f"is of complex numbers ({kind}); real ones are read"),
    ):
        if is_so:
            raise ImporterError(f"{name} {what}")
    try:
        dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
        if not dense.is_floating_point():
            return dense
        dense = dense.float() if dense.dtype.itemsize == 1 else dense
    except (NotImplementedError, RuntimeError):
        raise ImporterError(
            f"{name} is of type {kind} and {str(tensor.layout).removeprefix('torch.')}, which is "
            "not read; save it as a dense tensor of float32"
        ) from None
    if not bool(torch.isfinite(dense).all()):
        raise ImporterError(f"{name} has values that are not finite")
    if not bool(torch.isfinite(dense.float()).all()):
        raise ImporterError(f"{name} has values beyond 3.4e38, the largest of float32")
    return dense


def _explain(error: Exception) -> str:
    """The reason why torch does not load a file."""
    text = str(error)
    wanted = re.search(r"(?:GLOBAL|Unsupported class) ([\w.]+)", text)
    if wanted is not None:
        return (
            f"refused: loading it would call {wanted[1]}, and a checkpoint needs tensors only; if "
            f"you trust it, load it where it was made and {_HOW_TO_SAVE}"
        )
    if "TorchScript" in text:
        return (
            "refused: a TorchScript archive holds code; load it with torch.jit.load where it was "
            f"made and {_HOW_TO_SAVE}"
        )
    return (
        f"damaged or cut off ({type(error).__name__}): {text.splitlines()[0][:120]}; if it is "
        f"another archive, {_HOW_TO_SAVE}"
    )


def _state_in(path: Path, loaded: object) -> object:
    """The state_dict in a loaded object, where it may be nested or next to an optimizer's."""
    found: list[tuple[object, object]] = []
    # A mapping may contain itself.
    seen: set[int] = set()
    left: list[tuple[object, object]] = [(None, loaded)]
    while left:
        name, each = left.pop()
        if _is_state(each):
            found.append((name, each))
        elif isinstance(each, Mapping) and id(each) not in seen:
            seen.add(id(each))
            inner = {key: value for key, value in each.items() if isinstance(value, Mapping)}
            holder = next((own for own in _HOLDERS if own in inner), None)
            if holder is not None:
                left.append((name, inner[holder]))
            else:
                others = [pair for pair in inner.items() if not _NO_HOLDER.search(str(pair[0]))]
                left += reversed(others)
    if len(found) > 1:
        names = ", ".join(repr(name) for name, _ in found)
        raise ImporterError(f"{path}: holds several models, {names}; {_HOW_TO_SAVE} of one of them")
    return found[0][1] if found else loaded


def _is_state(found: object) -> bool:
    """Whether an object maps names to tensors and holds nothing else."""
    return (
        isinstance(found, Mapping)
        and bool(found)
        and all(isinstance(key, str) and isinstance(each, Tensor) for key, each in found.items())
    )


def _tensors(path: Path, loaded: object) -> dict[str, Tensor]:
    if not isinstance(loaded, Mapping) or not loaded:
        raise ImporterError(
            f"{path}: expected a state_dict, got an empty or single {type(loaded).__name__}; "
            f"{_HOW_TO_SAVE}"
        )
    for key, value in loaded.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ImporterError(
                f"{path}: expected tensors only, {key!r} is of type {type(value).__name__}; "
                f"{_HOW_TO_SAVE}"
            )
    return dict(loaded)
