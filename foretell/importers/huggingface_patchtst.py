"""`PatchTSTForPrediction` of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from foretell.importers.arguments import Arguments
from foretell.importers.huggingface_config import SavedConfig, State
from foretell.importers.layouts import Layout, rows
from foretell.models.layers.feed_forward import Activation

_POSITIONS = "model.encoder.positional_encoder.position_enc"
_CLASS_TOKEN = "model.encoder.positional_encoder.cls_token"  # noqa: S105 - no password


class PatchTST(SavedConfig):
    """Of a model that forecasts values, or distributions."""

    title: ClassVar[str] = "PatchTSTForPrediction"
    model_type: ClassVar[str] = "patchtst"

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

    @property
    def head(self) -> str | None:
        """What it forecasts: with any other loss than the squared error, distributions."""
        return None if self.loss == "mse" else self.distribution_output.replace("_", "-")

    @override
    def check(self) -> None:
        super().check()
        if self.loss != "mse" and self.prediction_length == 1:
            raise ValueError(
                "prediction_length 1: the library itself cannot run it with a distribution"
            )
        if self.context_length <= self.patch_length:
            raise ValueError(
                f"patch_length: {self.patch_length} steps are not fewer than the context of "
                f"{self.context_length}"
            )

    @override
    def fields(self, given: Arguments) -> dict[str, Any]:
        if given:
            raise ValueError(f"--{min(given)}: {self.title} reads the history alone")
        return {
            "architecture": "huggingface-patchtst",
            "channels": self.num_input_channels,
            "context": self.context_length,
            "horizon": self.prediction_length,
            "window_norm": self.window_norm,
            "head": self.head,
            "patch": self.patch_length,
            "stride": self.patch_stride,
            "d_model": self.d_model,
            "heads": self.num_attention_heads,
            "d_ff": self.ffn_dim,
            "encoder_layers": self.num_hidden_layers,
            "activation": self.activation_function,
            "own_embedding": not self.share_embedding,
            "class_token": self.use_cls_token,
            "channel_attention": self.channel_attention,
            "norm": self.norm_type.removesuffix("norm"),
            "norm_epsilon": self.norm_eps,
            "pre_norm": self.pre_norm,
            "feed_forward_bias": self.bias,
            # The library reads the class token whatever the pooling.
            "pooling": None if self.use_cls_token else self.pooling_type,
        }

    @override
    def layout(self) -> Layout:
        head = "" if self.head is None else ".proj.{parameters}"
        embedding = ".{enc_in}" if not self.share_embedding else ""
        norms = "norm_sublayer{}.*  {}_norm.*"
        if self.norm_type == "batchnorm":
            norms = "norm_sublayer{}.batchnorm.**  {}_norm.norm.**"
        places = {1: "attention", 2: "channel", 3: "feed_forward"}
        if not self.channel_attention:
            del places[2]
        table = [norms.format(number, name) for number, name in places.items()]
        table += [
            f"self_attn.{theirs}_proj.*  attention.{ours}.*"
            for theirs, ours in (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out"))
        ]
        table += ["ff.0.*  feed_forward.expand.*", "ff.3.*  feed_forward.contract.*"]
        return Layout(
            f"{self.title} of transformers",
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

    @override
    def prepare(self, state: State, given: Arguments) -> State:
        """With its position in the class token; that is in front of the others in the library."""
        state = dict(state)
        token, positions = state.get(_CLASS_TOKEN), state.get(_POSITIONS)
        if self.use_cls_token and token is not None and positions is not None:
            state[_CLASS_TOKEN] = token.flatten() + positions[0]
            state[_POSITIONS] = positions[1:]
        return state
