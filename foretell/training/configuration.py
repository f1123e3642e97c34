"""Configurations from settings of the user."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from foretell.models.config import ForecasterConfig
from foretell.training.errors import TrainingError


def configuration(family: type[ForecasterConfig], fields: Mapping[str, object]) -> ForecasterConfig:
    """The configuration of an architecture with these fields.

    Raises:
        TrainingError: a field is wrong; the message names it.
    """
    try:
        return family.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        names = [part for part in first["loc"] if isinstance(part, str)]
        place = f"{names[-1]}: " if names else ""
        raise TrainingError(f"{place}{first['msg'].removeprefix('Value error, ')}") from None
