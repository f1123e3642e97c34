"""Reading a published checkpoint file without running anything in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from foretell.models.importers.errors import ImporterError

# A zip archive since torch 1.6, a bare pickle before.
_MAGIC = (b"PK\x03\x04", b"\x80")
# Data parallelism and compilation put their own prefix before every key.
_WRAPPERS = ("module.", "_orig_mod.")
_HOLDERS = ("state_dict", "model_state_dict", "model")
_HOW_TO_SAVE = "save it with torch.save(model.state_dict(), FILE)"


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file that `torch.save(model.state_dict(), path)` wrote.

    Returns:
        The state_dict, on the CPU, without prefixes such as `module.`.

    Raises:
        ImporterError: the file is missing, empty, damaged, no PyTorch file, holds anything but
            tensors, or wants to run code.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ImporterError(f"{path}: {error.strerror}") from None
    if not start:
        raise ImporterError(f"{path}: the file is empty")
    if not start.startswith(_MAGIC):
        raise ImporterError(f"{path}: not a PyTorch file; {_HOW_TO_SAVE}")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch.load raise nearly anything
        raise ImporterError(f"{path}: {_explain(error)}") from None
    return check_finite(path, _strip(_tensors(path, loaded)))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, on the CPU.

    Raises:
        ImporterError: the file is damaged, or has values that are not finite.
    """
    try:
        return check_finite(path, load_file(path))
    except (OSError, SafetensorError) as error:
        raise ImporterError(f"{path}: damaged or cut off: {error}") from None


def _explain(error: Exception) -> str:
    wanted = re.search(r"(?:GLOBAL|Unsupported class|Unsupported operand) ([\w.]+)", str(error))
    if wanted is not None:
        return (
            f"refused: loading it would call {wanted[1]}, and a checkpoint needs tensors only; if "
            f"you trust it, load it where it was made and {_HOW_TO_SAVE}"
        )
    return f"damaged or cut off ({type(error).__name__}): {str(error).splitlines()[0][:120]}"


def _tensors(path: Path, loaded: object) -> dict[str, Tensor]:
    """The state_dict in what was loaded, which may lie next to an optimizer's."""
    if isinstance(loaded, Mapping):
        for holder in _HOLDERS:
            if isinstance(loaded.get(holder), Mapping):
                loaded = loaded[holder]
                break
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


def _strip(state: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in _WRAPPERS:
        if all(key.startswith(prefix) for key in state):
            return _strip({key.removeprefix(prefix): tensor for key, tensor in state.items()})
    return state


def check_finite(path: Path, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file.

    Raises:
        ImporterError: one holds what is no number.
    """
    for key, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ImporterError(f"{path}: {key} has values that are not finite")
    return state
