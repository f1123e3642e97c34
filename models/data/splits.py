"""Which rows a model learns from, is chosen by and is tested on."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from foretell.models.data.errors import DataError

Rows = tuple[int, int]


class Splits(BaseModel):
    """Row ranges, half open.

    Validation and test begin `context` rows early: their first target follows the last row of the
    range before, as in the published experiments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: Rows
    validation: Rows
    test: Rows

    @classmethod
    def by_fraction(
        cls,
        rows: int,
        context: int,
        train: float = 0.7,
        validation: float = 0.1,
        test: float = 0.2,
    ) -> Self:
        """The published split of data sets without one of their own.

        Raises:
            DataError: a fraction is not positive, or they do not add up to 1.
        """
        if min(train, validation, test) <= 0 or abs(train + validation + test - 1) > 1e-9:
            raise DataError(
                "splits: expected three positive fractions that add up to 1, "
                f"got {train:g}, {validation:g}, {test:g}"
            )
        # Validation gets what rounding leaves.
        return cls._adjacent(int(rows * train), rows - int(rows * test), rows, context)

    @classmethod
    def ett_hourly(cls, context: int) -> Self:
        """ETTh1 and ETTh2: 12, 4 and 4 months of 30 days."""
        return cls._adjacent(8640, 11520, 14400, context)

    @classmethod
    def ett_minute(cls, context: int) -> Self:
        """ETTm1 and ETTm2: the same months in steps of 15 minutes."""
        return cls._adjacent(8640 * 4, 11520 * 4, 14400 * 4, context)

    @classmethod
    def _adjacent(cls, train_end: int, validation_end: int, test_end: int, context: int) -> Self:
        return cls(
            train=(0, train_end),
            validation=(train_end - context, validation_end),
            test=(validation_end - context, test_end),
        )

    def check(self, rows: int, context: int, horizon: int) -> None:
        """Refuse splits that a table does not have or that hold no window.

        Args:
            rows: Rows of the table.
            context: Steps of history.
            horizon: Steps of forecast.

        Raises:
            DataError: names the split and how many rows it lacks.
        """
        for name, (start, end) in (
            ("train", self.train),
            ("validation", self.validation),
            ("test", self.test),
        ):
            if end > rows:
                raise DataError(f"{name} split: it ends at row {end}, the data has {rows} rows")
            if start < 0 or end - start < context + horizon:
                raise DataError(
                    f"{name} split: rows {max(start, 0)} to {end} hold no window of context "
                    f"{context} and horizon {horizon}; take more data or a shorter window"
                )
