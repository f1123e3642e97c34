"""The served form of Hugging Face's PatchTST."""

from __future__ import annotations

from torch import nn

from foretell.export.rewrites.attention import ServedAttention, TimeFirstAttention
from foretell.export.rewrites.batch_norm import affine_norms
from foretell.export.rewrites.lookup import Call, replace, rewrites
from foretell.models.architectures.huggingface_patchtst import ChannelPatchLayer
from foretell.models.attention.softmax import MultiHeadAttention


@rewrites(ChannelPatchLayer)
def rewrite_layer(plain: ChannelPatchLayer, call: Call) -> nn.Module | None:
    """Split the attention that tokens and channels share into two of fixed lengths.

    Layers with other mechanisms than softmax, or without attention between channels, are replaced
    part by part.
    """
    attention = plain.attention
    if plain.channel_norm is None or type(attention) is not MultiHeadAttention:
        return None
    channels, tokens = call.shapes[0][1:3]
    own, crossed = (
        ServedAttention(TimeFirstAttention(attention, (length, length), embedded=True))
        for length in (tokens, channels)
    )
    replace(plain, attention=own, crossed=crossed, **affine_norms(plain))
    return plain
