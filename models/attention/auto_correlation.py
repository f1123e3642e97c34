"""Auto-correlation: attention between lags (Wu et al., 2021, arXiv:2106.13008, section 3.2)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import AttentionStage, Form
from foretell.models.attention.evidence import Circulant
from foretell.models.attention.mechanism import MECHANISMS, Attended, MechanismConfig, Site


def fit_length(source: Tensor, length: int) -> Tensor:
    """Cut `[batch, time, features]` to `length` steps, or append zeros up to it."""
    return functional.pad(source[:, :length], (0, 0, 0, max(length - source.shape[1], 0)))


def circulant(lags: Tensor, weights: Tensor, length: int) -> Tensor:
    """The attention map of auto-correlation: `weights[i]` where key - query = `lags[i]`.

    Args:
        lags: `[batch, k]`.
        weights: `[batch, k]`.
        length: Steps of query and key.

    Returns:
        `[batch, length, length]`; each row sums to 1.
    """
    by_lag = weights.new_zeros(weights.shape[0], length).scatter(1, lags, weights)
    step = torch.arange(length, device=weights.device)
    return by_lag[:, (step[None, :] - step[:, None]) % length]


@MECHANISMS.add
class AutoCorrelationConfig(MechanismConfig):
    """Steps read the steps at the lags where query and key correlate most."""

    mechanism: Literal["autocorrelation"] = "autocorrelation"
    factor: float = Field(
        default=3, gt=0, description="Number of lags kept: int(factor * ln length)."
    )
    lags: Literal["all", "even"] = Field(
        default="all", description="Lags considered; even leaves out the last of an odd length."
    )
    training_lags: Literal["batch", "sample"] = Field(
        default="batch", description="In training, one choice of lags per batch or per sample."
    )
    longer_query: Literal["whole", "cut"] = Field(
        default="whole",
        description="For a query that is longer than its keys: compare all of it, or only its "
        "first steps, as many as it has more.",
    )

    form: ClassVar[Form] = "circulant"

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.channels is not None:
            raise ValueError("attention: autocorrelation cannot be within channels")
        if (site.query.of, site.query.stride) != (site.key.of, site.key.stride) or (
            not site.query.in_time
        ):
            raise ValueError("attention: autocorrelation is between steps alone")
        length = site.query.length
        kept, available = self.kept(length), self.available(length)
        if not 1 <= kept <= available:
            raise ValueError(
                f"factor: {self.factor:g} keeps {kept} of the {available} lags at length "
                f"{length}; expected 1 to {available}"
            )

    @override
    def build(self, site: Site) -> nn.Module:
        return AutoCorrelation(site.d_model, self, width=site.width)

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        # Keys are cut or zero-padded to the length of the query.
        length = site.query.length
        padding = max(length - site.key.length, 0)
        key = site.key.model_copy(update={"length": length, "padding": padding})
        sizes = {"kept": self.kept(length), "candidates": self.available(length)}
        return (self.stage(name, site._replace(key=key), **sizes),)

    def kept(self, length: int) -> int:
        """Number of lags kept at a length."""
        return int(self.factor * math.log(length))

    def available(self, length: int) -> int:
        """Number of lags at a length.

        An inverse FFT without an explicit length leaves out the last lag of an odd length.
        """
        return length if self.lags == "all" else length // 2 * 2

    def compared(self, query: int, key: int) -> int:
        """Number of steps of a query that are compared with its keys; the others are 0."""
        return query - key if self.longer_query == "cut" and query > key else query


class AutoCorrelation(nn.Module):
    """Mixes values at the lags where query and key correlate most.

    All heads share the correlation (its mean over heads and features) and so the lags; the number
    of heads has no influence on the result.

    Args:
        d_model: Features of a step.
        config: Settings of the mechanism. In evaluation each sample has its own choice of lags,
            whatever the setting for training, so a batch never changes a forecast.
        width: Features of the values; d_model if not given.
    """

    def __init__(
        self, d_model: int, config: AutoCorrelationConfig, *, width: int | None = None
    ) -> None:
        super().__init__()
        width = width or d_model
        self.config = config
        self.query = nn.Linear(d_model, width)
        self.key = nn.Linear(d_model, width)
        self.value = nn.Linear(d_model, width)
        self.out = nn.Linear(width, d_model)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,  # noqa: ARG002 - of mechanisms that hand scores on
        explain: bool = False,
    ) -> Attended:
        """Let `tokens` `[batch, query, d_model]` read `source` `[batch, key, d_model]`."""
        length = tokens.shape[1]
        compared = self.config.compared(length, source.shape[1])
        query = fit_length(self.query(tokens[:, :compared]), length)
        key = fit_length(self.key(source), length)
        value = fit_length(self.value(source), length)
        correlation = self.correlate(query, key)
        keep = self.config.kept(length)
        if self.training and self.config.training_lags == "batch":
            shared = correlation.mean(dim=0).topk(keep).indices
            chosen = shared.expand(len(correlation), -1)
            strongest = correlation.gather(1, chosen)
        else:
            strongest, chosen = correlation.topk(keep)
        weights = strongest.softmax(dim=-1)
        mixed = circulant(chosen, weights, length) @ value
        evidence = Circulant(chosen, weights, correlation) if explain else None
        return Attended(self.out(mixed), evidence)

    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        """Mean over features of the circular cross-correlation (Wiener-Khinchin theorem).

        Args:
            query: `[batch, time, d_model]`.
            key: `[batch, time, d_model]`.

        Returns:
            `[batch, lags]`; at lag l the mean of `query[t + l] * key[t]`, summed over t.
        """
        length = query.shape[1]
        # There is no FFT in half precision, which mixed precision may use.
        query, key = (
            part.to(torch.promote_types(part.dtype, torch.float32)) for part in (query, key)
        )
        # The mean commutes with the inverse transform: one transform instead of d_model.
        spectrum = torch.fft.rfft(query, dim=1) * torch.fft.rfft(key, dim=1).conj()
        lags = self.config.available(length)
        correlation: Tensor = torch.fft.irfft(spectrum.mean(dim=-1), n=lags, dim=1)
        return correlation
