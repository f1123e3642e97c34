"""What the parts of manifests and checkpoints are."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from foretell.timeaxis.frequency import Frequency

# The text of a frequency, which is checked and written in its usual form.
FrequencyAlias = Annotated[str, AfterValidator(lambda text: str(Frequency.parse(text)))]


class Part(BaseModel):
    """A part of a manifest or a checkpoint; it cannot be changed, and has no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def first_problem(error: ValidationError) -> tuple[str, str]:
    """The place of the first wrong field, empty for the whole, and what is wrong there."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
