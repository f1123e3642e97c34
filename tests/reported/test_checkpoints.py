"""Checkpoints in wrappers, in dictionaries and in shards, and tensors that are no plain floats.

Reported of other projects as huggingface/transformers#28041 and #25205 (`_orig_mod.`),
karpathy/nanoGPT#325, thuml/OpenLTM#55 (`module.`), microsoft/ProbTS#61 and chengtan9907/OpenSTL#125
(Lightning's `model.`), raven-ml/raven#136 and linto-ai/whisper-timestamped#160 (shards),
google/praxis#68 (weights of eight bits) and vllm-project/compressed-tensors#536 (float8).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.importers.keys import load_weights
from foretell.importers.reading import read_safetensors, read_state
from foretell.importers.saved import Request
from tests.golden import shared
from tests.importers import published

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


VALUES = torch.tensor([[0.0, 1.5], [-2.0, 0.0]])


def quantised(values: Tensor) -> Tensor:
    return torch.quantize_per_tensor(values, 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize(
    "change",
    [
        Tensor.to_sparse,
        Tensor.to_sparse_csr,
        Tensor.to_sparse_csc,
        Tensor.half,
        Tensor.double,
        *(
            lambda values, kind=kind: values.to(kind)
            for kind in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
        ),
    ],
)
def test_tensors_of_exact_values_are_read(
    tmp_path: Path, change: Callable[[Tensor], Tensor]
) -> None:
    given = {"weight": change(VALUES)}
    torch.save(given, tmp_path / "a.pth")
    assert torch.equal(read_state(tmp_path / "a.pth")["weight"].float(), VALUES)
    if given["weight"].layout == torch.strided:
        save_file(given, tmp_path / "a.safetensors")
        assert torch.equal(read_safetensors(tmp_path / "a.safetensors")["weight"].float(), VALUES)


BEYOND = r"weight has values beyond 3\.4e38"


@pytest.mark.filterwarnings("ignore:.*[Qq]uantiz")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (quantised, r"weight is quantised \(qint8\); save the model as it was before"),
        (lambda values: values.to(torch.complex64), "weight is of complex numbers"),
        (lambda values: values.to("meta"), "weight has a shape and no values"),
        (lambda values: values.double() + 1e300, BEYOND),
        (lambda values: values.double() / 0, "weight has values that are not finite"),
    ],
)
def test_other_tensors_are_refused_by_name(
    tmp_path: Path, change: Callable[[Tensor], Tensor], message: str
) -> None:
    given = {"weight": change(VALUES)}
    torch.save(given, tmp_path / "a.pth")
    with pytest.raises(ImporterError, match=message):
        read_state(tmp_path / "a.pth")
    if message == BEYOND:
        save_file(given, tmp_path / "a.safetensors")
        with pytest.raises(ImporterError, match=message):
            read_safetensors(tmp_path / "a.safetensors")


KEYS = published.keys("patchtst")
STATE = published.publish(published.make("patchtst"), KEYS)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int64, torch.bool])
def test_weights_of_integers_are_refused(kind: torch.dtype) -> None:
    key, model = "head.linear.weight", published.make("patchtst")
    with pytest.raises(
        ImporterError,
        match=r"whole numbers; save the model as it was.*\n.*weight is of type u?(int|bool)",
    ):
        load_weights(model, KEYS, STATE | {key: STATE[key].to(kind)})
    load_weights(model, KEYS, STATE | {"encoder.norm.1.num_batches_tracked": torch.tensor(3)})
    unknown = {"scale_steps": torch.ones(3, 2).to(kind)}
    with pytest.raises(ImporterError, match=r"unexpected \(1\):\n    scale_steps \[3, 2\]"):
        load_weights(model, KEYS, STATE | unknown)
