"""Folders that `nf.save(FOLDER)` of NeuralForecast writes, from version 3.2 on.

A model is `NAME_0.safetensors`; its header has its class and its arguments as JSON.
`configuration.json` has the settings of all models. No code in them is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from foretell.importers.errors import ImporterError
from foretell.importers.reading import plain

CONFIGURATION = "configuration.json"
_FORMAT = "2"
# Files that belong to all models.
_COMMON = {"configuration.safetensors", "dataset.safetensors"}
# Prefix of arguments that are arrays, which lie next to the weights.
_ARGUMENTS = "__hparams__."


class Member(NamedTuple):
    """A model of a folder.

    Attributes:
        file: File of the model.
        kind: Name of the class.
        arguments: Arguments of the class, by name.
        state: Weights, by key.
        settings: Settings of the folder.
    """

    file: Path
    kind: str
    arguments: Mapping[str, Any]
    state: dict[str, Tensor]
    settings: Mapping[str, Any]


def read_folder(folder: Path, member: str | None) -> Member:
    """Read a model, by the name of its file without the suffix, or the only one.

    Raises:
        ImporterError: it is not such a folder, is damaged or of another version, lacks a model of
            that name, or has several to choose from.
    """
    settings = _read_settings(folder)
    file = _choose(folder, member)
    try:
        with safe_open(file, framework="pt") as content:
            header = content.metadata() or {}
            state = {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ImporterError(f"{file}: damaged or cut off: {error}") from None
    try:
        kind, arguments = header["model_class"], dict(json.loads(header["hyper_parameters"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ImporterError(
            f"{file}: its header has no class and arguments of a NeuralForecast model"
        ) from None
    weights = {key: each for key, each in state.items() if not key.startswith(_ARGUMENTS)}
    return Member(file, kind, arguments, plain(file, weights), settings)


def _read_settings(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIGURATION
    if not folder.is_dir():
        raise ImporterError(f"{folder}: expected the folder that nf.save wrote, got a file")
    if not path.exists() and any(folder.glob("*.ckpt")):
        raise ImporterError(
            f"{folder}: saved as pickles, which may run code; load it with NeuralForecast 3.2 or "
            "newer where it was made, and save it again"
        )
    try:
        document = json.loads(path.read_bytes())
        version, settings = document["nf_format"], document["configuration"]
        dict(settings)
    except OSError as error:
        raise ImporterError(f"{path}: {error.strerror}; nf.save writes this file") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ImporterError(f"{path}: not what nf.save writes") from None
    if version != _FORMAT:
        raise ImporterError(f"{path}: format {version}, expected {_FORMAT}")
    return settings  # type: ignore[no-any-return]


def _choose(folder: Path, member: str | None) -> Path:
    files = sorted(file for file in folder.glob("*.safetensors") if file.name not in _COMMON)
    names = ", ".join(file.stem for file in files)
    if not files:
        raise ImporterError(f"{folder}: holds no model; nf.save writes NAME_0.safetensors")
    if member is None and len(files) > 1:
        raise ImporterError(f"{folder}: holds several models; choose one with --alias: {names}")
    for file in files:
        if member in (None, file.stem):
            return file
    raise ImporterError(f"--alias {member}: no such model; expected one of {names}")
