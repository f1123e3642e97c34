"""The pin and the challenger of a model: the file `<repository>/<model>/serving.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.part import first_problem
from foretell.bundle.placement import sync

_Version = Annotated[str, Field(pattern=f"^{layout.VERSION.pattern}$")]
_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True)


class Challenger(BaseModel):
    """A version that forecasts a share of the requests once more, to be compared.

    Attributes:
        version: The version.
        share: Share of the requests, above 0 and at most 1.
    """

    model_config = _STRICT

    version: _Version
    share: Annotated[float, Field(gt=0, le=1)]


class Serving(BaseModel):
    """The pin and the challenger of a model, as a repository has them.

    Attributes:
        pin: The version that the name means; None for the newest.
        challenger: The challenger, if there is one.
    """

    model_config = _STRICT

    pin: _Version | None = None
    challenger: Challenger | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.challenger is not None and self.challenger.version == self.pin:
            raise ValueError(f"version {self.pin} is pinned, so it cannot be the challenger")
        return self

    @property
    def versions(self) -> set[str]:
        """The versions that it names."""
        challenger = None if self.challenger is None else self.challenger.version
        return {version for version in (self.pin, challenger) if version is not None}

    def document(self) -> bytes:
        """The content of its file, in JSON."""
        return self.model_dump_json(indent=2, exclude_none=True).encode() + b"\n"


# The value of models without a file.
NOTHING = Serving()


def parse(content: bytes, place: str) -> Serving:
    """Read the content of a file; `place` is its name for messages.

    Raises:
        BundleError: the content is invalid.
    """
    try:
        return Serving.model_validate_json(content)
    except ValidationError as error:
        field, reason = first_problem(error)
        where = f"{field}: " * bool(field)
        raise BundleError(f"{place}: {where}{reason}; correct the file, or remove it") from None


def read(repository: Path, name: str) -> Serving:
    """Read the file of a model; without a file nothing is pinned.

    Raises:
        BundleError: the file is invalid.
        OSError: it cannot be read.
    """
    file = repository / name / layout.SERVING
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return NOTHING
    return parse(content, str(file))


def write(repository: Path, name: str, serving: Serving) -> None:
    """Write the file of a model, or remove it if it would say nothing.

    Readers see the old or the new content, also after a loss of power.

    Raises:
        OSError: the file cannot be written.
    """
    folder = repository / name
    file = folder / layout.SERVING
    hidden = folder / f".{layout.SERVING}.{uuid4().hex[:8]}"
    try:
        if serving == NOTHING:
            file.unlink(missing_ok=True)
        else:
            hidden.write_bytes(serving.document())
            sync(hidden)
            hidden.replace(file)
        sync(folder)
    finally:
        hidden.unlink(missing_ok=True)
