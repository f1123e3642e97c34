"""Folders of Hugging Face's transformers: `config.json`, and `model.safetensors` or a `.bin`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foretell.models.forecaster import ARCHITECTURES
from foretell.models.importers.arguments import Argument, Arguments
from foretell.models.importers.configure import refusal
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.huggingface_autoformer import Autoformer
from foretell.models.importers.huggingface_config import SavedConfig, State
from foretell.models.importers.huggingface_patchtst import PatchTST
from foretell.models.importers.huggingface_time_series_transformer import TimeSeriesTransformer
from foretell.models.importers.reading import read_safetensors, read_state
from foretell.models.importers.saved import Saved
from foretell.models.importers.weights import load_weights

CONFIG = "config.json"
_READ: tuple[type[SavedConfig], ...] = (PatchTST, TimeSeriesTransformer, Autoformer)


def read(folder: Path, member: str | None, given: Arguments) -> Saved:
    """Read a folder that `save_pretrained` wrote, which holds one model.

    Args:
        folder: See above.
        member: None; which of several models is asked of other libraries.
        given: What no file tells, by the names of the options.

    Raises:
        ImporterError: it is none, or of a model that is not read, or something has to be given; the
            message names file and field or key.
    """
    if member is not None:
        raise ImporterError(f"--member {member}: {folder} holds one model alone")
    path = folder / CONFIG
    found = _read_json(path)
    kind = _kind(path, found)
    try:
        config = kind.model_validate_json(json.dumps(found))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ImporterError(f"{path}: {place} {first['input']!r}: {first['msg']}") from None
    try:
        config.check()
        model = ARCHITECTURES.read(config.fields(given)).build()
    except ValidationError as error:
        raise ImporterError(f"{path}: {refusal(error)}") from None
    except ValueError as error:
        raise ImporterError(f"{path}: {error}") from None
    load_weights(model, config.layout(), config.prepare(_read_weights(folder), given))
    return Saved(model.eval(), _arguments(config, found) | given)


def _kind(path: Path, found: dict[str, Any]) -> type[SavedConfig]:
    kind, names = found.get("model_type"), found.get("architectures")
    for one in _READ:
        if kind == one.model_type and names in (None, [one.title]):
            return one
    listed = names if isinstance(names, list) else [kind]
    said = ", ".join(str(name) for name in listed)
    *others, last = (one.title for one in _READ)
    read = f"{', '.join(others)} and {last}"
    raise ImporterError(f"{path}: a model of {said} is not read; {read} are")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ImporterError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ImporterError(f"{path}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ImporterError(f"{path}: expected an object with model_type")
    return found


def _arguments(config: SavedConfig, found: dict[str, Any]) -> Arguments:
    values = config.model_dump(exclude=set(config.hidden))
    return {
        name: Argument(value, CONFIG if name in found else "default of transformers")
        for name, value in values.items()
    }


def _read_weights(folder: Path) -> State:
    for name, reader in (
        ("model.safetensors", read_safetensors),
        ("pytorch_model.bin", read_state),
    ):
        if (folder / name).exists():
            found = reader(folder / name)
            return {key: tensor.float() for key, tensor in found.items()}
    raise ImporterError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")
