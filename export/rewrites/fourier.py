"""Correlation by a Fourier transform of every few steps, as matrix products."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.export.rewrites.correlator import Correlator

_BEST_FINE = 8


class FourierCorrelator(Correlator):
    """Correlates and mixes in frequency over coarse steps, and in time within them.

    With `length = coarse * fine`, step `fine * i + j` belongs to the j-th of `fine` series of
    `coarse` steps each. From the series j, lag `fine * a + b` reads the series `(j + b) % fine`
    shifted by `a + (j + b) // fine`. A shift is a phase in frequency, so at each of the coarse
    frequencies, independently,

        mixed[j] = sum over b of conj(w[b]) * phase * value[(j + b) % fine]

    where w are the weights, themselves read as `fine` series: a small matrix for each frequency,
    linear in w by constant `phases`. The correlation follows from this by transposition: the
    derivative of `sum(key * mix(w, query))` by w.

    Complex numbers are pairs of real ones. As the series are real, half of the frequencies suffice.

    Args:
        length: As for `Correlator`.
        coarse: A divisor of the length.
        dtype: Type of the constants.
    """

    def __init__(self, length: int, coarse: int, dtype: torch.dtype) -> None:
        super().__init__(length)
        self.fine = length // coarse
        self.frequencies = coarse // 2 + 1
        frequency = torch.arange(self.frequencies, dtype=torch.float64)
        turns = 2 * math.pi * frequency / coarse
        angle = turns[:, None] * torch.arange(coarse)
        forth = torch.stack([angle.cos(), -angle.sin()], dim=1)
        # Frequencies other than 0 and the highest stand for their mirror image as well.
        share = torch.full_like(frequency, 2 / coarse)
        share[0] = 1 / coarse
        if coarse % 2 == 0:
            share[-1] = 1 / coarse
        back = forth * share[:, None, None]
        self.forth = nn.Buffer(forth.flatten(0, 1).to(dtype))
        self.back = nn.Buffer(back.flatten(0, 1).T.contiguous().to(dtype))
        self.phases = nn.Buffer(_phases(self.fine, turns).to(dtype))

    @override
    def rows(self, steps: int) -> int:
        return 2 * self.frequencies * self.fine

    @override
    def effort(self, steps: int) -> int:
        return 2 * self.frequencies * min(steps, self.length)

    @override
    def represent(self, series: Tensor) -> Tensor:
        """To `[batch, frequencies, 2 * fine, d_model]`: real parts, then imaginary ones."""
        series = series[:, : self.length] if series.shape[1] > self.length else series
        # Padding to the length would be zero, and so needs no columns.
        rows = math.ceil(series.shape[1] / self.fine)
        if missing := rows * self.fine - series.shape[1]:
            series = functional.pad(series, (0, 0, 0, missing))
        features = series.shape[2]
        stepped = series.reshape(-1, rows, self.fine * features)
        shape = (-1, self.frequencies, 2 * self.fine, features)
        return (self.forth[:, :rows] @ stepped).reshape(shape)

    @override
    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        products = (key @ query.transpose(2, 3)).reshape(-1, self.frequencies, 4 * self.fine**2, 1)
        by_lag = self.phases @ products
        stepped = by_lag.reshape(-1, 2 * self.frequencies, self.fine)
        return (self.back @ stepped).reshape(-1, self.length)

    @override
    def mix(self, by_lag: Tensor, value: Tensor) -> Tensor:
        frequencies, fine, features = self.frequencies, self.fine, value.shape[3]
        stepped = self.forth @ by_lag.reshape(-1, self.length // fine, fine)
        matrix = stepped.reshape(-1, frequencies, 1, 2 * fine) @ self.phases
        mixed = matrix.reshape(-1, frequencies, 2 * fine, 2 * fine) @ value
        mixed = mixed.reshape(-1, 2 * frequencies, fine * features)
        return (self.back @ mixed).reshape(-1, self.length, features)


def _phases(fine: int, turns: Tensor) -> Tensor:
    """`[frequencies, 2 * fine, 4 * fine**2]`: weights to the matrix that mixes them."""
    series = torch.arange(fine)
    source = (series[:, None] + series) % fine
    shift = (series[:, None] + series) // fine
    angle = turns[:, None, None] * shift
    phases = torch.zeros(len(turns), 2, fine, 2, fine, 2, fine, dtype=torch.float64)
    lag, target = series[:, None].expand(fine, fine), series.expand(fine, fine)
    # (wr - i wi) * (cos + i sin): share of the weights' parts in real and imaginary part.
    parts = ((angle.cos(), angle.sin()), (angle.sin(), -angle.cos()))
    for part, (real, imaginary) in enumerate(parts):
        phases[:, part, lag, 0, target, 0, source] = real
        phases[:, part, lag, 1, target, 1, source] = real
        phases[:, part, lag, 0, target, 1, source] = -imaginary
        phases[:, part, lag, 1, target, 0, source] = imaginary
    return phases.reshape(len(turns), 2 * fine, 4 * fine**2)


def best_divisor(length: int) -> int:
    """The coarse steps of the fastest transform, as measured in onnxruntime on CPU.

    The fastest has 8 fine steps or close to 8: as complex numbers these are 16 rows of the small
    products, a register of AVX-512.
    """
    divisors = [fine for fine in range(1, length + 1) if length % fine == 0]
    return length // min(divisors, key=lambda fine: abs(math.log(fine / _BEST_FINE)))


def multiplications(length: int, coarse: int) -> int:
    """Multiplications of a correlation and a mixture per feature; else `2 * length**2`."""
    transforms = 2 * length * (coarse + 2)
    return transforms + 8 * (coarse // 2 + 1) * (length // coarse) ** 2
