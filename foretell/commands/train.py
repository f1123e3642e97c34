"""`foretell train`: from a CSV file to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from pydantic import Field, ValidationError, field_validator

from foretell.bundle.frequency import Frequency
from foretell.models.training.config import TrainingConfig


class Arguments(TrainingConfig):
    """What the flags and the YAML file can say."""

    data: Path = Field(description="CSV file: a timestamp column and one column a channel.")
    out: Path = Field(description="Folder of the checkpoint.")
    timestamp_column: str | None = Field(
        default=None, description="Name of the timestamp column; found if not given."
    )
    channels: tuple[str, ...] | None = Field(
        default=None, description="Columns to forecast, separated by commas; all if not given."
    )
    frequency: str | None = Field(
        default=None, description="Spacing of the rows, such as h or 15min; found if not given."
    )

    @field_validator("channels", mode="before")
    @classmethod
    def _split_channels(cls, channels: object) -> object:
        return channels.split(",") if isinstance(channels, str) else channels

    @field_validator("frequency")
    @classmethod
    def _check_frequency(cls, frequency: str | None) -> str | None:
        return frequency and str(Frequency.parse(frequency))

    def settings(self) -> TrainingConfig:
        """Everything that is not about files and columns."""
        names = set(TrainingConfig.model_fields)
        return TrainingConfig.model_validate(self.model_dump(include=names))


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """One option for each field, the required ones first."""
    schemas = Arguments.model_json_schema()["properties"]
    fields = sorted(Arguments.model_fields.items(), key=lambda item: not item[1].is_required())
    for name, field in reversed(fields):
        described = field.description or ""
        if field.default is not None and not field.is_required():
            default = field.default
            shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
            described += f"  [default: {shown}]"
        option = click.option(
            f"--{name.replace('_', '-')}", name, metavar=_metavar(schemas[name]), help=described
        )
        command = option(command)
    return command


def _metavar(schema: dict[str, Any]) -> str:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    return "|".join(
        "|".join(kind["enum"])
        if "enum" in kind
        else {"array": "a,b,…"}.get(kind["type"], kind.get("format", kind["type"]).upper())
        for kind in kinds
    )


@click.command("train")
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with any of the settings below by the same names; flags win over it.",
)
@click.option("--restart", is_flag=True, help="Throw away an unfinished training.")
@click.option("--overwrite", is_flag=True, help="Replace the checkpoint that --out has.")
@_options
def command(file: Path | None, restart: bool, overwrite: bool, **flags: str | None) -> None:
    """Train a model on a CSV file and measure it on the rows it has not seen.

    An interrupted training goes on from its last finished epoch when the command is given again.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    arguments = _validate((_read_yaml(file) if file else {}) | given)

    from rich.console import Console

    from foretell.models.checkpoint import CheckpointError, check_free
    from foretell.models.data.csv import read_csv
    from foretell.models.data.errors import DataError
    from foretell.models.training.errors import TrainingError
    from foretell.models.training.progress import ConsoleProgress
    from foretell.models.training.train import train
    from foretell.report import print_test

    try:
        check_free(arguments.out, overwrite=overwrite)
        table = read_csv(
            arguments.data,
            timestamp_column=arguments.timestamp_column,
            channels=arguments.channels,
            frequency=Frequency.parse(arguments.frequency) if arguments.frequency else None,
        )
        with ConsoleProgress(Console(stderr=True)) as progress:
            trained = train(
                arguments.settings(),
                table,
                arguments.out,
                restart=restart,
                overwrite=overwrite,
                progress=progress,
            )
    except (CheckpointError, DataError, TrainingError) as error:
        raise _refusal(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on after the last finished epoch", err=True)
        raise SystemExit(130) from None
    print_test({arguments.arch: trained.info.test})
    click.echo(f"checkpoint written to {arguments.out}")


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        settings = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise _refusal(f"{path}: not YAML: {error}") from None
    if not isinstance(settings, dict):
        raise _refusal(f"{path}: expected settings as 'name: value', one a line")
    named = {str(key).replace("-", "_"): value for key, value in settings.items()}
    unknown = sorted(named.keys() - Arguments.model_fields.keys())
    if unknown:
        raise _refusal(f"{path}: unknown setting {', '.join(unknown)}")
    return named


def _validate(values: dict[str, Any]) -> Arguments:
    try:
        return Arguments.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        if first["type"] == "missing":
            raise _refusal(f"{flag} is missing; give it or set it in --config") from None
        problem = first["msg"].removeprefix("Value error, ")
        raise _refusal(f"{flag}: {problem}, got {first['input']!r}") from None


def _refusal(message: str) -> SystemExit:
    click.echo(f"foretell train: {message}", err=True)
    return SystemExit(2)
