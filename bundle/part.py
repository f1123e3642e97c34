"""The base class of the parts of manifests and checkpoints."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from foretell.timeaxis.frequency import Frequency

# The text of a frequency, checked and normalised.
FrequencyAlias = Annotated[str, AfterValidator(lambda text: str(Frequency.parse(text)))]


class Part(BaseModel):
    """A part of a manifest or a checkpoint; immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def first_problem(error: ValidationError) -> tuple[str, str]:
    """The path of the first wrong field, empty for the whole, and the error message."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
