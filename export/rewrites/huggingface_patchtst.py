"""The PatchTST of Hugging Face as it is served."""

from __future__ import annotations

from torch import nn

from foretell.export.rewrites.attention import ServedAttention, TimeFirstAttention
from foretell.export.rewrites.batch_norm import affine_norms
from foretell.export.rewrites.lookup import Call, replace, rewrites
from foretell.models.architectures.huggingface_patchtst import ChannelPatchLayer
from foretell.models.attention.softmax import MultiHeadAttention


@rewrites(ChannelPatchLayer)
def rewrite_layer(plain: ChannelPatchLayer, call: Call) -> nn.Module | None:
    """Let the attention that tokens and channels share be two of fixed lengths.

    Other mechanisms than softmax, and what does not attend between channels, is replaced part by
    part.
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
