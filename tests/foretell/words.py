"""Settings as words of `foretell train` and `foretell tune`."""

from __future__ import annotations

from typing import Any

from foretell.commands.train import command
from foretell.training.config import TrainingConfig

OPTIONS = {parameter.name for parameter in command.params}


def named(**settings: Any) -> dict[str, Any]:
    """Settings by their full names: those of no training are of its model."""
    known = {*OPTIONS, *TrainingConfig.model_fields}
    return {name if name in known else f"model.{name}": one for name, one in settings.items()}


def words(**settings: Any) -> list[str]:
    """The same as options: `--context=24`, `--set=model.d_model=8`."""
    return [
        f"--{name.replace('_', '-')}={value}" if name in OPTIONS else f"--set={name}={value}"
        for name, value in named(**settings).items()
    ]
