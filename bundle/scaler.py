"""Standardisation of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import model_validator

from foretell.bundle.part import Part


class Scaler(Part):
    """Standardisation of each channel. The graph applies it; this copy is for the reader.

    Attributes:
        mean: Number that is subtracted from each channel.
        std: Number that the difference is divided by.
        level: Mean of each channel in the training rows, if it is known and differs from `mean`.
        deviation: Standard deviation of each channel in the training rows, if `level` is given; 0
            for a constant channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    level: tuple[float, ...] | None = None
    deviation: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        known = (each for each in (self.level, self.deviation) if each is not None)
        if any(len(each) != len(self.mean) for each in known):
            raise ValueError("level and deviation: expected one of each channel")
        if (self.level is None) != (self.deviation is None):
            raise ValueError("level and deviation belong together")
        if min(self.deviation or (1.0,)) < 0:
            raise ValueError("deviation: expected no negative numbers")
        return self

    @classmethod
    def identity(cls, channels: int) -> Self:
        """The standardisation that leaves values unchanged."""
        return cls(mean=(0.0,) * channels, std=(1.0,) * channels)

    @property
    def is_identity(self) -> bool:
        """Whether it leaves values unchanged."""
        return not any(self.mean) and set(self.std) == {1.0}

    @property
    def training(self) -> Self:
        """Mean and standard deviation of the training rows; 1 for a constant channel.

        Without `level` and `deviation`, this scaler itself.
        """
        if self.level is None or self.deviation is None:
            return self
        return type(self)(mean=self.level, std=tuple(each or 1.0 for each in self.deviation))

    @property
    def known(self) -> tuple[bool, ...]:
        """Whether `training` has the statistics of each channel; not if it is left unchanged."""
        if self.level is not None:
            return (True,) * len(self.mean)
        return tuple(each != (0.0, 1.0) for each in zip(self.mean, self.std, strict=True))

    @property
    def constant(self) -> tuple[bool, ...]:
        """Whether each channel is known to be constant in the training rows."""
        return tuple(each == 0 for each in self.deviation or self.std)

    def beside(self, other: Self) -> Self:
        """This scaler with `level` and `deviation` from the training rows of another scaler."""
        known = other.training
        if other.deviation is None and (known.mean, known.std) == (self.mean, self.std):
            return self
        return self.model_copy(
            update={"level": known.mean, "deviation": other.deviation or other.std}
        )

    def of(self, columns: Sequence[int] | None) -> Self:
        """The scaler of the channels at these places; all channels if None."""
        if columns is None:
            return self
        every = self.model_dump()
        return self.model_copy(
            update={
                name: tuple(values[column] for column in columns)
                for name, values in every.items()
                if values is not None
            }
        )
