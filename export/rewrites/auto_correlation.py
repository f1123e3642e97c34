"""Auto-correlation without a Fourier transform operator, in two projections instead of four."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretell.export.rewrites.correlator import Correlator
from foretell.export.rewrites.fourier import FourierCorrelator, best_divisor, multiplications
from foretell.export.rewrites.gram import GramCorrelator
from foretell.export.rewrites.lookup import Call, rewrites
from foretell.export.rewrites.margins import choose_lags
from foretell.models.attention.auto_correlation import AutoCorrelation, fit_length
from foretell.models.attention.evidence import Circulant
from foretell.models.attention.mechanism import Attended

# Measured in onnxruntime on CPU: below this length, or with more multiplications than this share of
# the Gram matrix's, the many small operators of the Fourier form cost more than it saves.
_SHORTEST = 64
_LARGEST_SHARE = 0.6


def correlator_for(length: int, dtype: torch.dtype) -> Correlator:
    """The faster correlator at a length."""
    coarse = best_divisor(length)
    share = multiplications(length, coarse) / (2 * length**2)
    if length < _SHORTEST or share > _LARGEST_SHARE:
        return GramCorrelator(length, dtype)
    return FourierCorrelator(length, coarse, dtype)


class ServedAutoCorrelation(nn.Module):
    """An auto-correlation, called like the plain one; it always returns its lags.

    Replacements, and why they are equal:

    - The FFT becomes a `Correlator`, an exact form of the same sums.
    - Query and key projection become one: `query . key` is `tokens . (Wq' Wk source)`. The query's
      bias shifts all lags by the same amount, which changes neither their order nor the softmax. So
      does the key's, unless the source is padded with zeros, which have no bias.
    - Value and output projection become one: the lags are the same for all features.
    - The tokens' mean over time is taken out first. That shifts all lags equally as well, but in
      float32 a large offset would drown the differences between lags. As the lags' weights sum to
      1, mean and biases add to the mixture a part that is constant over time.
    - All shifts are added to the correlation that is reported.
    - If a query is cut, mean and biases do not shift all lags equally. The mean stays in, and the
      bias adds to each lag the sum of a series over the steps that are compared there.

    Args:
        plain: The trained layer.
        correlator: Correlator of the tokens' length; layers of the same length share it.
        source_length: Steps of the source, or None if the tokens read themselves.
        centre: Whether to take out the mean, which a seasonal part hardly has.
        constant: Whether the output includes its part that is constant over time, which a seasonal
            part does not need.
        biased: Whether the constant part includes the bias.
        level_free: Whether tokens that are constant over time are zero on input, or never occur, as
            with embedded positions.

    Attributes:
        bias: `[d_model]`, the constant part without the share of the mean.
    """

    # Keys and the mixture stay in float32: rounding there decides which lags are kept.
    reducible_parts = ("value",)

    def __init__(
        self,
        plain: AutoCorrelation,
        correlator: Correlator,
        source_length: int | None = None,
        *,
        centre: bool = True,
        constant: bool = True,
        biased: bool = True,
        level_free: bool = True,
    ) -> None:
        super().__init__()
        length, features = correlator.length, plain.query.in_features
        # The correlation is the mean of these features.
        projected = plain.query.out_features
        dtype = plain.query.weight.dtype
        self.correlator = correlator
        self.itself = source_length is None
        self.constant = constant
        self.biased = biased
        self.level_free = level_free
        self.keep = plain.config.kept(length)
        self.known = min(source_length or length, length)
        self.padded = self.known < length
        self.compared = plain.config.compared(length, self.known)
        cut = self.compared < length
        self.centre = centre and not cut
        # `[known, length]`: whether a step of the source meets one that is compared, by lag.
        self.met = nn.Buffer(_met(self.known, self.compared, length).to(dtype)) if cut else None
        dropped = plain.config.available(length) < length
        # An inverse FFT one lag short is the full correlation times a constant matrix.
        self.shorten = nn.Buffer(_shorten(length).to(dtype)) if dropped else None
        # Factor, in the correlation, of a product that is constant over all known steps.
        self.gain = self.known * (length / (length - 1) if dropped else 1.0)

        query, key, value, out = (
            (layer.weight.detach().double(), layer.bias.detach().double())
            for layer in (plain.query, plain.key, plain.value, plain.out)
        )
        mixing, mixing_bias = out[0] @ value[0], out[0] @ value[1]
        key_bias = query[0].T @ key[1] / projected
        # Only a padded series has steps without a bias.
        biases = (key_bias, mixing_bias) if self.padded else (None, None)
        self.key = _linear(query[0].T @ key[0] / projected, biases[0], dtype)
        self.value = _linear(mixing, biases[1], dtype)
        self.key_bias = nn.Buffer(key_bias.to(dtype))
        self.query_bias = nn.Buffer((key[0].T @ query[1] / projected).to(dtype))
        self.both_biases = nn.Buffer((query[1] @ key[1] / projected).to(dtype))
        # An offset of the data would overflow in half precision, which `value` may have.
        self.of_mean = nn.Buffer(mixing.T.to(dtype)) if centre and self.itself else None
        self.bias = nn.Buffer((out[1] if self.padded else out[1] + mixing_bias).to(dtype))

        shared = 0 if self.itself else correlator.effort(self.known)
        first = 2 * (self.known * features + correlator.effort(self.known))
        last = 2 * correlator.rows(self.known) * features + shared
        self.project_first = self.padded or first < last

    def forward(self, tokens: Tensor, source: Tensor, **_: object) -> Attended:
        """Let `tokens` `[batch, query, d_model]` read `source`, which may be the tokens."""
        represent = self.correlator.represent
        if self.centre and not self.level_free:
            # The mean of a constant is rounded, and the remainder would choose lags. Constant
            # tokens minus the first of them are exactly zero.
            first = tokens[:, :1]
            tokens = tokens - first
            rest = tokens.mean(dim=1, keepdim=True)
            mean, tokens = first + rest, tokens - rest
        else:
            mean = tokens.mean(dim=1, keepdim=True)
            if self.centre:
                tokens = tokens - mean
        read = tokens if self.itself else source
        query = represent(
            tokens if self.met is None else fit_length(tokens[:, : self.compared], tokens.shape[1])
        )
        if self.project_first:
            # In two dimensions a bias is part of the product.
            flat = read.flatten(0, 1)
            key, value = (
                represent(layer(flat).reshape(read.shape)) for layer in (self.key, self.value)
            )
        else:
            known = query if self.itself else represent(read)
            key, value = self.key(known), self.value(known)

        correlation = self.correlator.correlate(query, key)
        if self.met is not None:
            of_bias = source[:, : self.known] @ self.query_bias + self.both_biases
            correlation = correlation + of_bias @ self.met
        # One operator less than zeros of the same shape. (Values that are not finite give no
        # forecast.)
        unweighted = correlation * 0
        if self.shorten is not None:
            correlation = correlation @ self.shorten
        lags, weights, extremes = choose_lags(correlation, self.keep)
        output = self.correlator.mix(unweighted.scatter(1, lags, weights), value)
        if self.constant:
            output = output + self._constant(mean)
        if self.met is None:
            correlation = correlation + self._shift(mean, source)
        kept = lags[:, : self.keep], weights[:, : self.keep]
        return Attended(output, Circulant(*kept, correlation, extremes))

    def shift_by(self, tokens: Tensor, level: Tensor) -> Tensor:
        """Shift of all lags by a level `[batch, 1, d_model]` of tokens that read themselves."""
        mean = tokens.mean(dim=1, keepdim=True)
        return self._shift(mean + level, tokens) - self._shift(mean, tokens)

    def _constant(self, mean: Tensor) -> Tensor:
        if self.of_mean is None:
            return self.bias
        return mean @ self.of_mean + self.bias if self.biased else mean @ self.of_mean

    def _shift(self, mean: Tensor, source: Tensor) -> Tensor:
        """Shift of all lags of the correlation by mean and biases, `[batch, 1]`."""
        read = mean if self.itself else source[:, : self.known].mean(dim=1, keepdim=True)
        shift = self.both_biases + read @ self.query_bias
        if not self.padded:
            shift = shift + mean @ self.key_bias
        if self.centre:
            shift = shift + (mean * self.key(read)).sum(dim=-1)
        return shift * self.gain


@rewrites(AutoCorrelation)
def rewrite_auto_correlation(plain: AutoCorrelation, call: Call) -> nn.Module:
    """Correlate without a Fourier transform operator."""
    length, known = call.shapes[0][1], None if call.itself else call.shapes[1][1]
    return ServedAutoCorrelation(plain, correlator_for(length, plain.query.weight.dtype), known)


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


def _met(known: int, compared: int, length: int) -> Tensor:
    step, lag = torch.arange(known)[:, None], torch.arange(length)
    return ((step + lag) % length < compared).double()
