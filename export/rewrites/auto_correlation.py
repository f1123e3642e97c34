"""Auto-correlation without a Fourier transform operator, in two projections instead of four."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from foretell.export.rewrites.choices import choose_lags
from foretell.export.rewrites.correlator import Correlator
from foretell.export.rewrites.fourier import FourierCorrelator, best_divisor, multiplications
from foretell.export.rewrites.gram import GramCorrelator
from foretell.export.rewrites.reductions import mean_over_time
from foretell.export.rewrites.registry import Call, rewrites
from foretell.models.attention.auto_correlation import AutoCorrelation
from foretell.models.attention.evidence import Circulant
from foretell.models.attention.mechanism import Attended

# Measured in onnxruntime on CPU: below this length, or with more multiplications than this share of
# the Gram matrix's, the many small operators of the Fourier form cost more than it saves.
_SHORTEST = 64
_LARGEST_SHARE = 0.6


def correlator_for(length: int, dtype: torch.dtype) -> Correlator:
    """The faster form at a length."""
    coarse = best_divisor(length)
    share = multiplications(length, coarse) / (2 * length**2)
    if length < _SHORTEST or share > _LARGEST_SHARE:
        return GramCorrelator(length, dtype)
    return FourierCorrelator(length, coarse, dtype)


class FoldedMixed(NamedTuple):
    """What a layer returns: `tokens + plain(tokens, source).output` and its lags.

    Attributes:
        attended: Its output less what is constant over time: `mean @ missing.T + missing_bias`,
            with the layer's buffers.
        mean: `[batch, 1, d_model]`, of the tokens.
    """

    attended: Attended
    mean: Tensor


class FoldedAutoCorrelation(nn.Module):
    """An auto-correlation and the residual around it.

    What it replaces, and why it is equal:

    - The FFT becomes a `Correlator`, an exact form of the same sums.
    - Query and key projection become one: `query . key` is `tokens . (Wq' Wk source)`. The query's
      bias shifts all lags by the same amount, which changes neither their order nor the softmax,
      and so does the key's, unless the source is continued by zeros, which have no bias.
    - Value and output projection become one: the lags are the same for all features.
    - The tokens' mean over time is taken out first. That shifts all lags equally as well, but in
      float32 a large offset would drown the differences between lags. As the lags' weights sum to
      1, what mean and biases add to the mixture is constant over time, and is left to the caller:
      a seasonal part has no use for it.
    - All shifts are added to the correlation that is reported.

    Args:
        plain: The trained layer.
        correlator: Of the tokens' length; layers of the same length share it.
        source_length: Steps of the source, or None where the tokens read themselves.
        centre: Whether to take out the mean. A seasonal part hardly has one.
    """

    # Keys, and what is mixed by lags, decide which lags are kept.
    reducible_parts = ("value",)

    def __init__(
        self,
        plain: AutoCorrelation,
        correlator: Correlator,
        source_length: int | None = None,
        *,
        centre: bool,
    ) -> None:
        super().__init__()
        length, features = correlator.length, plain.query.in_features
        dtype = plain.query.weight.dtype
        self.correlator = correlator
        self.centre = centre
        self.keep = plain.config.kept(length)
        self.known = min(source_length or length, length)
        self.padded = self.known < length
        dropped = plain.config.available(length) < length
        # An inverse FFT one lag short is the full correlation times a constant matrix.
        self.register_buffer("shorten", _shorten(length).to(dtype) if dropped else None)
        # What a product summed over all known steps is in the correlation.
        self.gain = self.known * (length / (length - 1) if dropped else 1.0)

        query, key, value, out = (
            (layer.weight.detach().double(), layer.bias.detach().double())
            for layer in (plain.query, plain.key, plain.value, plain.out)
        )
        mixing, mixing_bias = out[0] @ value[0], out[0] @ value[1]
        identity = torch.eye(features, dtype=torch.float64)
        key_bias = query[0].T @ key[1] / features
        # Only a series has steps on which a bias can be missing.
        biases = (key_bias, mixing_bias) if self.padded else (None, None)
        self.key = _linear(query[0].T @ key[0] / features, biases[0], dtype)
        self.value = _linear(mixing, biases[1], dtype)
        constants = {
            "key_bias": key_bias,
            "query_bias": key[0].T @ query[1] / features,
            "both_biases": query[1] @ key[1] / features,
            "missing": identity + mixing if source_length is None else identity,
            "missing_bias": out[1] if self.padded else out[1] + mixing_bias,
        }
        for name, constant in constants.items():
            self.register_buffer(name, constant.to(dtype))
        self.shorten: Tensor | None
        self.key_bias: Tensor
        self.query_bias: Tensor
        self.both_biases: Tensor
        self.missing: Tensor
        self.missing_bias: Tensor

        shared = 0 if source_length is None else correlator.effort(self.known)
        first = 2 * (self.known * features + correlator.effort(self.known))
        last = 2 * correlator.rows(self.known) * features + shared
        self.project_first = self.padded or first < last

    def forward(self, tokens: Tensor, source: Tensor | None = None) -> FoldedMixed:
        """Let `tokens` `[batch, query, d_model]` read `source`, or themselves."""
        represent = self.correlator.represent
        mean = mean_over_time(tokens)
        if self.centre:
            tokens = tokens - mean
        query = represent(tokens)
        read = tokens if source is None else source
        if self.project_first:
            # In two dimensions a bias is part of the product.
            flat = read.flatten(0, 1)
            key, value = (
                represent(layer(flat).reshape(read.shape)) for layer in (self.key, self.value)
            )
        else:
            known = query if source is None else represent(source)
            key, value = self.key(known), self.value(known)

        correlation = self.correlator.correlate(query, key)
        # One operator less than zeros of the same shape. (What is not finite gives no forecast.)
        unweighted = correlation * 0
        if self.shorten is not None:
            correlation = correlation @ self.shorten
        lags, weights, extremes = choose_lags(correlation, self.keep)
        mixed = self.correlator.mix(unweighted.scatter(1, lags, weights), value)
        correlation = correlation + self._shift(mean, source)
        kept = lags[:, : self.keep], weights[:, : self.keep]
        evidence = Circulant(*kept, correlation, extremes)
        return FoldedMixed(Attended(tokens + mixed, evidence), mean)

    def _shift(self, mean: Tensor, source: Tensor | None) -> Tensor:
        """What mean and biases add to every lag of the correlation, `[batch, 1]`."""
        read = mean if source is None else mean_over_time(source[:, : self.known])
        shift = self.both_biases + read @ self.query_bias
        if not self.padded:
            shift = shift + mean @ self.key_bias
        if self.centre:
            shift = shift + (mean * self.key(read)).sum(dim=-1)
        return shift * self.gain


class ServedAutoCorrelation(nn.Module):
    """An auto-correlation by itself, called as the plain one is.

    Args:
        folded: With the residual around it, which is taken off again.
    """

    def __init__(self, folded: FoldedAutoCorrelation, *, itself: bool) -> None:
        super().__init__()
        self.folded = folded
        self.itself = itself

    def forward(self, tokens: Tensor, source: Tensor, **_: object) -> Attended:
        """`[batch, query, d_model]`, and its lags whether asked for or not."""
        found: FoldedMixed = self.folded(tokens, None if self.itself else source)
        constant = found.mean @ self.folded.missing.T + self.folded.missing_bias
        attended = found.attended
        return attended._replace(output=attended.output + constant - tokens)


@rewrites(AutoCorrelation)
def rewrite_auto_correlation(plain: AutoCorrelation, call: Call) -> nn.Module:
    """Correlate without a Fourier transform operator."""
    length, known = call.shapes[0][1], None if call.itself else call.shapes[1][1]
    correlator = correlator_for(length, plain.query.weight.dtype)
    folded = FoldedAutoCorrelation(plain, correlator, known, centre=True)
    return ServedAutoCorrelation(folded, itself=call.itself)


def _linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> nn.Linear:
    features_out, features_in = weight.shape
    linear = nn.Linear(features_in, features_out, bias=bias is not None, dtype=dtype)
    linear.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    return linear


def _shorten(length: int) -> Tensor:
    """`[length, length - 1]`."""
    spectrum = torch.fft.rfft(torch.eye(length, dtype=torch.float64), dim=1)
    shorter: Tensor = torch.fft.irfft(spectrum, n=length - 1, dim=1)
    return shorter
