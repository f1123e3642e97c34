"""The source of a model's data, so that it can be read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_serializer, field_validator

from foretell.bundle.checksums import sha256
from foretell.bundle.part import Part, first_problem
from foretell.data.errors import DataError, MissingFileError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.splits import Splits
from foretell.timeaxis.frequency import Frequency


class DataSource(Part):
    """The file that a model learnt from.

    Attributes:
        path: Absolute path of the file. In a home folder it is written with `~`, which hides the
            name of the user.
        sha256: sha256 of the file.
        reading: Options that it was read with.
        rows: Number of rows.
        series: Number of series.
        splits: Splits of the rows.
    """

    path: Path
    sha256: str
    reading: Reading
    rows: int = Field(ge=1)
    series: int = Field(default=1, ge=1)
    splits: Splits

    @field_validator("path")
    @classmethod
    def _at_home(cls, path: Path) -> Path:
        return path.expanduser() if path.parts[:1] == ("~",) else path

    @field_serializer("path")
    def _from_home(self, path: Path) -> str:
        home = Path.home()
        return str(Path("~", path.relative_to(home)) if path.is_relative_to(home) else path)

    @classmethod
    def of(cls, panel: Panel, splits: Splits) -> Self | None:
        """The source of a panel; None if it was not read from a file."""
        if panel.source is None:
            return None
        return cls(
            path=panel.source.path.resolve(),
            sha256=sha256(panel.source.path),
            reading=panel.source.reading,
            rows=len(panel),
            series=len(panel.series),
            splits=splits,
        )

    @classmethod
    def recorded(cls, fields: Mapping[str, Any] | None) -> Self | None:
        """The source in a checkpoint; None without one.

        Args:
            fields: The `data` of a `CheckpointInfo`.

        Raises:
            DataError: a field is wrong.
        """
        try:
            return None if fields is None else cls.model_validate(fields)
        except ValidationError as error:
            field, message = first_problem(error)
            raise DataError(f"the checkpoint's config.json: data.{field}: {message}") from None

    def read(
        self, channels: tuple[str, ...], frequency: Frequency, copy: Path | None = None
    ) -> Panel:
        """Read the file again, with the channels and the frequency of the model.

        Args:
            channels: Columns to read, in this order.
            frequency: Spacing of the rows.
            copy: Path of the file, if it was moved.

        Raises:
            MissingFileError: the file is missing.
            DataError: the file has changed or cannot be read.
        """
        path = copy or self.path
        if not path.is_file():
            raise MissingFileError(f"{path}: missing; the model was trained on it")
        found = sha256(path)
        if found != self.sha256:
            raise DataError(
                f"{path}: changed, or not the data the model was trained on: its sha256 is "
                f"{found}, that of {self.path} was {self.sha256}"
            )
        known = {"channels": channels, "frequency": str(frequency)}
        return read(path, self.reading.model_copy(update=known))
