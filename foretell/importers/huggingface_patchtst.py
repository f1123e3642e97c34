"""`PatchTSTForPrediction` of Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from foretell.importers.huggingface_config import Length, SavedConfig, State, known_as
from foretell.importers.keys import KeyMap, rows
from foretell.models.layers.feed_forward import Activation

_POSITIONS = "model.encoder.positional_encoder.position_enc"
_CLASS_TOKEN = "model.encoder.positional_encoder.cls_token"  # noqa: S105 - not a password

_LAYER = """
    self_attn.q_proj.*    attention.query.*
    self_attn.k_proj.*    attention.key.*
    self_attn.v_proj.*    attention.value.*
    self_attn.out_proj.*  attention.out.*
    ff.0.*                feed_forward.expand.*
    ff.3.*                feed_forward.contract.*
"""


class PatchTST(SavedConfig):
    """Configuration of a PatchTST that forecasts values or distributions."""

    title: ClassVar[str] = "PatchTSTForPrediction"
    model_type: ClassVar[str] = "patchtst"

    num_input_channels: Length = known_as("channels", 1)
    context_length: Length = known_as("context", 32)
    prediction_length: Length = known_as("horizon", 24)
    loss: str | None = "mse"
    distribution_output: Literal["student_t", "normal", "negative_binomial"] = "student_t"
    patch_length: Length = known_as("patch", 1)
    patch_stride: Length = known_as("stride", 1)
    num_hidden_layers: Length = known_as("encoder_layers", 3)
    d_model: Length = known_as("d_model", 128)
    num_attention_heads: Length = known_as("heads", 4)
    share_embedding: bool = True
    channel_attention: bool = known_as("channel_attention", False)
    ffn_dim: Length = known_as("d_ff", 512)
    norm_type: Literal["batchnorm", "layernorm"] = "batchnorm"
    norm_eps: Annotated[float, Field(gt=0)] = known_as("norm_epsilon", 1e-5)
    bias: bool = known_as("feed_forward_bias", True)
    activation_function: Activation = known_as("activation", "gelu")
    pre_norm: bool = known_as("pre_norm", True)
    positional_encoding_type: Literal["sincos", "random"] = "sincos"
    use_cls_token: bool = known_as("class_token", False)
    share_projection: Literal[True] = True
    scaling: str | bool | None = "std"
    pooling_type: Literal["mean", "max"] | None = "mean"

    @property
    def head(self) -> str | None:
        """The distribution that it forecasts; None with the squared error as loss."""
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
    def fields(self, given: Mapping[str, str]) -> dict[str, Any]:
        if given:
            raise ValueError(f"{min(given)}: {self.title} reads the history alone")
        return self._same() | {
            "architecture": "huggingface-patchtst",
            "window_norm": self.window_norm,
            "head": self.head,
            "own_embedding": not self.share_embedding,
            "norm": self.norm_type.removesuffix("norm"),
            # The library reads the class token and ignores the pooling.
            "pooling": None if self.use_cls_token else self.pooling_type,
        }

    @override
    def key_map(self) -> KeyMap:
        head, ours = ("", ".0") if self.head is None else (".proj.{parameter}", ".{parameter}")
        embedding = "" if self.share_embedding else ".{channel}"
        norms = "norm_sublayer{}.*  {}_norm.*"
        if self.norm_type == "batchnorm":
            norms = "norm_sublayer{}.batchnorm.**  {}_norm.norm.**"
        places = {1: "attention", 2: "channel", 3: "feed_forward"}
        if not self.channel_attention:
            del places[2]
        table = [norms.format(number, name) for number, name in places.items()]
        model = f"""
            embedder.input_embedding{embedding}.*  embeddings{embedding or ".0"}.*
            positional_encoder.position_enc        positions
            positional_encoder.cls_token           class_token
        """
        found = rows(model, "model.encoder.")
        found += rows("\n".join(table) + _LAYER, "model.encoder.layers.{layer}.", "layers.{layer}.")
        return KeyMap(
            f"{self.title} of transformers",
            found + rows(f"head.projection{head}.*  heads{ours}.*"),
        )

    @override
    def prepare(self, state: State, given: Mapping[str, str]) -> State:
        """Add the first position to the class token, which comes first in the library."""
        state = dict(state)
        token, positions = state.get(_CLASS_TOKEN), state.get(_POSITIONS)
        if self.use_cls_token and token is not None and positions is not None:
            state[_CLASS_TOKEN] = token.flatten() + positions[0]
            state[_POSITIONS] = positions[1:]
        return state
