"""Folders of Hugging Face's transformers: `config.json`, and weights in one file or in shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretell.importers.arguments import Argument
from foretell.importers.errors import ImporterError, explained
from foretell.importers.huggingface_config import SavedConfig, State
from foretell.importers.huggingface_lagged import (
    FUTURE,
    STATIC,
    Autoformer,
    TimeSeriesTransformer,
)
from foretell.importers.huggingface_patchtst import PatchTST
from foretell.importers.keys import KeyMap, load_weights, unwrap
from foretell.importers.reading import read_safetensors, read_state
from foretell.importers.registry import FOLDERS
from foretell.importers.saved import Request, SavedModel
from foretell.models.config import ARCHITECTURES

CONFIG = "config.json"
# Files in order of preference.
_WEIGHTS: Mapping[str, Callable[[Path], State]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": read_state,
}
_READ: tuple[type[SavedConfig], ...] = (PatchTST, TimeSeriesTransformer, Autoformer)


def read(request: Request) -> SavedModel:
    """Read a folder that `save_pretrained` wrote, which holds one model.

    Raises:
        ImporterError: it is not such a folder, its model is not supported, or an option is missing;
            the message names file and field or key.
    """
    folder = request.file
    own = FOLDERS["huggingface"].keys()
    given = {name: value for name, value in request.arguments.items() if name in own}
    named = {FUTURE: request.future_covariates, STATIC: request.static_covariates}
    flags = {name: names for name, names in named.items() if names is not None}
    if request.member is not None:
        raise ImporterError(f"--alias {request.member}: {folder} holds only one model")
    path = folder / CONFIG
    found = _read_json(path)
    kind = _kind(path, found)
    try:
        config = kind.model_validate_json(json.dumps(found))
        config.check()
        model = ARCHITECTURES.read(config.fields(given | flags)).build()
    except ValueError as error:
        raise ImporterError(f"{path}: {explained(error)}") from None
    keys = config.key_map()
    load_weights(model, keys, config.prepare(_read_weights(folder, keys), given | flags))
    arguments = {
        name: Argument(value, CONFIG if name in found else "default of transformers")
        for name, value in config.model_dump(exclude=set(config.hidden)).items()
    }
    arguments |= {name: Argument(value, "--set") for name, value in given.items()}
    arguments |= {
        name: Argument(value, f"--{name.replace('_', '-')}") for name, value in flags.items()
    }
    return SavedModel(model.eval(), arguments)


def _kind(path: Path, found: dict[str, Any]) -> type[SavedConfig]:
    kind, names = found.get("model_type"), found.get("architectures")
    for one in _READ:
        if kind == one.model_type and names in (None, [one.title]):
            return one
    kinds = ", ".join(map(str, names if isinstance(names, list) else [kind]))
    read = ", ".join(one.title for one in _READ)
    raise ImporterError(
        f"{path}: {kinds} (model_type {kind}) is not supported; expected one of {read}"
    )


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


def _read_weights(folder: Path, keys: KeyMap) -> State:
    for name, reader in _WEIGHTS.items():
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            found = reader(folder / name)
        elif index.exists():
            found = _read_shards(index, reader)
        else:
            continue
        return {
            key: tensor.float() if tensor.is_floating_point() else tensor
            for key, tensor in unwrap(found, [keys]).items()
        }
    names = " nor ".join(_WEIGHTS)
    raise ImporterError(f"{folder}: neither {names} is there, nor an index of their shards")


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
