"""Folders of Hugging Face's transformers: `config.json`, and weights, in one file or in shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.configure import refusal
from foretell.importers.errors import ImporterError
from foretell.importers.huggingface_autoformer import Autoformer
from foretell.importers.huggingface_config import SavedConfig, State
from foretell.importers.huggingface_patchtst import PatchTST
from foretell.importers.huggingface_time_series_transformer import TimeSeriesTransformer
from foretell.importers.layouts import Layout
from foretell.importers.reading import read_safetensors, read_state
from foretell.importers.saved import Saved
from foretell.importers.weights import check_floats, load_weights
from foretell.importers.wrapping import unwrap
from foretell.models.forecaster import ARCHITECTURES

CONFIG = "config.json"
# Preferred in this order.
_WEIGHTS: Mapping[str, Callable[[Path], State]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": read_state,
}
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
    state = _read_weights(folder, config.layout())
    load_weights(model, config.layout(), config.prepare(state, given))
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
    except (ValueError, RecursionError) as error:
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


def _read_weights(folder: Path, layout: Layout) -> State:
    for name, reader in _WEIGHTS.items():
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            found = reader(folder / name)
        elif index.exists():
            found = _read_shards(index, reader)
        else:
            continue
        found = unwrap(found, [layout])
        check_floats(layout, found)
        return {
            key: tensor.float() if tensor.is_floating_point() else tensor
            for key, tensor in found.items()
        }
    names = " nor ".join(_WEIGHTS)
    raise ImporterError(f"{folder}: neither {names} is there, nor an index of shards of one")


def _read_shards(index: Path, reader: Callable[[Path], State]) -> State:
    """The tensors of all files that an index names."""
    places = _read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(
        isinstance(name, str) and Path(name).name == name for name in places.values()
    ):
        raise ImporterError(f"{index}: expected a weight_map from keys to files of this folder")
    found: State = {}
    for name in dict.fromkeys(places.values()):
        shard = index.parent / name
        if not shard.is_file():
            raise ImporterError(f"{shard}: missing, and {index.name} names it")
        for key, tensor in reader(shard).items():
            if places.get(key, name) == name:
                found[key] = tensor
    if missing := [key for key in places if key not in found]:
        raise ImporterError(f"{index.parent / places[missing[0]]}: has no {missing[0]}")
    return found
