"""Checkpoints in wrappers, in dictionaries and in shards were not recognised.

Reported of other projects as huggingface/transformers#28041 and #25205 (`_orig_mod.`),
karpathy/nanoGPT#325, thuml/OpenLTM#55 (`module.`), microsoft/ProbTS#61 and chengtan9907/OpenSTL#125
(Lightning's `model.`), raven-ml/raven#136 and linto-ai/whisper-timestamped#160 (shards).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.importers.saved import Request
from tests.golden import shared

WRAPPERS = ["module.", "_orig_mod.", "model.", "net.", "module._orig_mod.", "system.model."]
CASES = "cases/data"


def request(file: Path, source: str, **given: Any) -> Request:
    return Request(
        file=file,
        source=source,
        unscaled=True,
        channels=("a", "b"),
        frequency="h",
        **given,
    )


def forecast(found: Imported) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    config = found.model.config
    with torch.inference_mode():
        return found.model(torch.randn(2, config.context, config.channels, generator=generator))


@pytest.fixture
def checkpoint() -> Path:
    (path,) = shared(f"{CASES}/checkpoints/lightning").glob("*/checkpoint.pth")
    return path


def of_library(file: Path, checkpoint: Path) -> Imported:
    arguments = {"activation": "gelu", "marks": "0"}
    setting = checkpoint.parent.name
    return import_checkpoint(request(file, "tslib", arguments=arguments, setting=setting))


@pytest.mark.parametrize("prefix", WRAPPERS)
@pytest.mark.parametrize("holder", [None, "state_dict", "net"])
def test_a_wrapped_file(checkpoint: Path, tmp_path: Path, prefix: str, holder: str | None) -> None:
    expected = forecast(of_library(checkpoint, checkpoint))
    saved = torch.load(checkpoint, weights_only=True)
    state = saved.get("state_dict", saved)
    bare = {key.removeprefix("model."): each for key, each in state.items()}
    wrapped: dict[str, Any] = {prefix + key: each for key, each in bare.items()}
    torch.save({holder: wrapped, "epoch": 1} if holder else wrapped, tmp_path / "a.pth")
    assert torch.equal(forecast(of_library(tmp_path / "a.pth", checkpoint)), expected)


@pytest.fixture
def shards() -> Path:
    return shared(f"{CASES}/huggingface_shards")


def joined(shards: Path) -> dict[str, Tensor]:
    parts = (load_file(path) for path in sorted(shards.glob("*.safetensors")))
    return {key: each for part in parts for key, each in part.items()}


def folder(tmp_path: Path, shards: Path) -> Path:
    (tmp_path / "config.json").write_bytes((shards / "config.json").read_bytes())
    return tmp_path


@pytest.mark.parametrize("prefix", ["", *WRAPPERS])
def test_a_folder_is_read_as_its_shards(tmp_path: Path, shards: Path, prefix: str) -> None:
    state = {prefix + key: each for key, each in joined(shards).items()}
    save_file(state, folder(tmp_path, shards) / "model.safetensors")
    found = import_checkpoint(request(tmp_path, "huggingface"))
    expected = import_checkpoint(request(shards, "huggingface"))
    assert torch.equal(forecast(found), forecast(expected))


def test_shards_of_pickles(tmp_path: Path, shards: Path) -> None:
    places = {}
    for number, (key, each) in enumerate(joined(shards).items()):
        name = f"pytorch_model-{number % 2}.bin"
        places[key] = name
        path = folder(tmp_path, shards) / name
        known = torch.load(path, weights_only=True) if path.exists() else {}
        torch.save(known | {key: each}, path)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    found = import_checkpoint(request(tmp_path, "huggingface"))
    expected = import_checkpoint(request(shards, "huggingface"))
    assert torch.equal(forecast(found), forecast(expected))


def test_shards_that_are_not_whole(tmp_path: Path, shards: Path) -> None:
    state = joined(shards)
    first, *rest = state
    folder(tmp_path, shards)
    index = tmp_path / "model.safetensors.index.json"
    save_file({key: state[key] for key in rest}, tmp_path / "a.safetensors")

    def refused(places: object, message: str) -> None:
        index.write_text(json.dumps({"weight_map": places}))
        with pytest.raises(ImporterError, match=message):
            import_checkpoint(request(tmp_path, "huggingface"))

    refused(dict.fromkeys(state, "a.safetensors"), rf"a\.safetensors: has no {first}")
    refused(dict.fromkeys(state, "b.safetensors"), r"b\.safetensors: missing, and model\.safet")
    refused(dict.fromkeys(state, "../a.safetensors"), "expected a weight_map from keys to files")
    refused(None, "expected a weight_map")
