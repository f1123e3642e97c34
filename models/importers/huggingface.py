"""Folders of Hugging Face's transformers: `config.json`, and `model.safetensors` or a `.bin`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from foretell.models.forecaster import ARCHITECTURES
from foretell.models.importers.arguments import Argument, Arguments
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.layouts import Layout, rows
from foretell.models.importers.reading import read_safetensors, read_state
from foretell.models.importers.saved import Saved
from foretell.models.importers.weights import load_weights
from foretell.models.layers.feed_forward import Activation

CONFIG = "config.json"
_READ = "PatchTSTForPrediction"
_POSITIONS = "model.encoder.positional_encoder.position_enc"
_CLASS_TOKEN = "model.encoder.positional_encoder.cls_token"  # noqa: S105 - no password


class _Config(BaseModel):
    """What of `config.json` a forecast depends on, with the library's defaults."""

    model_config = ConfigDict(extra="ignore", strict=True)

    num_input_channels: int = Field(default=1, ge=1)
    context_length: int = Field(default=32, ge=1)
    prediction_length: int = Field(default=24, ge=1)
    loss: str | None = "mse"
    distribution_output: Literal["student_t", "normal", "negative_binomial"] = "student_t"
    patch_length: int = Field(default=1, ge=1)
    patch_stride: int = Field(default=1, ge=1)
    num_hidden_layers: int = Field(default=3, ge=1)
    d_model: int = Field(default=128, ge=1)
    num_attention_heads: int = Field(default=4, ge=1)
    share_embedding: bool = True
    channel_attention: bool = False
    ffn_dim: int = Field(default=512, ge=1)
    norm_type: Literal["batchnorm", "layernorm"] = "batchnorm"
    norm_eps: float = Field(default=1e-5, gt=0)
    bias: bool = True
    activation_function: Activation = "gelu"
    pre_norm: bool = True
    positional_encoding_type: Literal["sincos", "random"] = "sincos"
    use_cls_token: bool = False
    share_projection: Literal[True] = True
    scaling: str | bool | None = "std"
    pooling_type: Literal["mean", "max"] | None = "mean"
    # No fields of the library's, but read where a file has them.
    scaling_dim: Literal[1] = 1
    keepdim: Literal[True] = True
    minimum_scale: float | None = None


def read(folder: Path, member: str | None = None) -> Saved:
    """Read a folder that `save_pretrained` wrote, which holds one model.

    Raises:
        ImporterError: it is none, or of a model that is not read; the message names file and field
            or key.
    """
    if member is not None:
        raise ImporterError(f"--member {member}: {folder} holds one model alone")
    path = folder / CONFIG
    found = _read_json(path)
    kind, names = found.get("model_type"), found.get("architectures")
    if kind != "patchtst" or names not in (None, [_READ]):
        listed = names if isinstance(names, list) else [kind]
        said = ", ".join(str(name) for name in listed)
        raise ImporterError(f"{path}: a model of {said} is not read; {_READ} is")
    try:
        config = _Config.model_validate_json(json.dumps(found))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ImporterError(f"{path}: {place} {first['input']!r}: {first['msg']}") from None
    _check(path, config)
    try:
        model = ARCHITECTURES.read(_fields(config)).build()
    except ValidationError as error:
        raise ImporterError(f"{path}: {error.errors()[0]['msg']}") from None
    load_weights(model, _layout(config), _prepare(_read_weights(folder), config))
    return Saved(model.eval(), _arguments(config, found))


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


def _check(path: Path, config: _Config) -> None:
    if config.loss != "mse" and config.prediction_length == 1:
        raise ImporterError(
            f"{path}: prediction_length 1: the library itself cannot run it with a distribution"
        )
    if config.context_length <= config.patch_length:
        raise ImporterError(
            f"{path}: patch_length: {config.patch_length} steps are not fewer than the context "
            f"of {config.context_length}"
        )
    usual = {"mean": 1e-5, "magnitude": 1e-10}.get(_window_norm(config) or "")
    if config.minimum_scale not in (None, usual):
        raise ImporterError(
            f"{path}: minimum_scale {config.minimum_scale}: models with {usual} are read"
        )


def _window_norm(config: _Config) -> str | None:
    """What stands for `scaling`: a word that the library does not know means none there."""
    if config.scaling == "mean" or config.scaling is True:
        return "magnitude"
    return "mean" if config.scaling == "std" else None


def _head(config: _Config) -> str | None:
    """The distributions that it forecasts: with any other loss than the squared error, some."""
    return None if config.loss == "mse" else config.distribution_output.replace("_", "-")


def _fields(config: _Config) -> dict[str, Any]:
    return {
        "architecture": "huggingface-patchtst",
        "channels": config.num_input_channels,
        "context": config.context_length,
        "horizon": config.prediction_length,
        "window_norm": _window_norm(config),
        "head": _head(config),
        "patch": config.patch_length,
        "stride": config.patch_stride,
        "d_model": config.d_model,
        "heads": config.num_attention_heads,
        "d_ff": config.ffn_dim,
        "encoder_layers": config.num_hidden_layers,
        "activation": config.activation_function,
        "own_embedding": not config.share_embedding,
        "class_token": config.use_cls_token,
        "channel_attention": config.channel_attention,
        "norm": config.norm_type.removesuffix("norm"),
        "norm_epsilon": config.norm_eps,
        "pre_norm": config.pre_norm,
        "feed_forward_bias": config.bias,
        # The library reads the class token whatever the pooling.
        "pooling": None if config.use_cls_token else config.pooling_type,
    }


def _arguments(config: _Config, found: dict[str, Any]) -> Arguments:
    values = config.model_dump(exclude={"scaling_dim", "keepdim", "minimum_scale"})
    return {
        name: Argument(value, CONFIG if name in found else "default of transformers")
        for name, value in values.items()
    }


def _read_weights(folder: Path) -> dict[str, Tensor]:
    for name, reader in (
        ("model.safetensors", read_safetensors),
        ("pytorch_model.bin", read_state),
    ):
        if (folder / name).exists():
            found = reader(folder / name)
            return {key: tensor.float() for key, tensor in found.items()}
    raise ImporterError(f"{folder}: neither model.safetensors nor pytorch_model.bin is there")


def _layout(config: _Config) -> Layout:
    """The keys of a model."""
    head = "" if _head(config) is None else ".proj.{parameters}"
    embedding = ".{enc_in}" if not config.share_embedding else ""
    norms = "norm_sublayer{}.*  {}_norm.*"
    if config.norm_type == "batchnorm":
        norms = "norm_sublayer{}.batchnorm.**  {}_norm.norm.**"
    places = {1: "attention", 2: "channel", 3: "feed_forward"}
    if not config.channel_attention:
        del places[2]
    table = [norms.format(number, name) for number, name in places.items()]
    table += [
        f"self_attn.{theirs}_proj.*  attention.{ours}.*"
        for theirs, ours in (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out"))
    ]
    table += ["ff.0.*  feed_forward.expand.*", "ff.3.*  feed_forward.contract.*"]
    return Layout(
        f"{_READ} of transformers",
        {},
        rows(
            f"""
            embedder.input_embedding{embedding}.*  embeddings{embedding or ".0"}.*
            positional_encoder.position_enc        positions
            positional_encoder.cls_token           class_token
            """,
            "model.encoder.",
        )
        + rows("\n".join(table), "model.encoder.layers.{e_layers}.", "layers.{e_layers}.")
        + rows(f"head.projection{head}.*  heads{head.removeprefix('.proj') or '.0'}.*"),
    )


def _prepare(state: dict[str, Tensor], config: _Config) -> dict[str, Tensor]:
    """The class token with its position, which the library has in front of those of the patches."""
    state = dict(state)
    token, positions = state.get(_CLASS_TOKEN), state.get(_POSITIONS)
    if config.use_cls_token and token is not None and positions is not None:
        state[_CLASS_TOKEN] = token.flatten() + positions[0]
        state[_POSITIONS] = positions[1:]
    return state
