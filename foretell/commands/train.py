"""`foretell train`: from a CSV file to a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from foretell.bundle.frequency import Frequency
from foretell.commands.grouped import GroupedCommand

if TYPE_CHECKING:
    from foretell.commands.train_options import Arguments


@click.command("train", cls=GroupedCommand)
@click.option(
    "--preset",
    "recipe",
    metavar="NAME",
    help="A published recipe, such as patchtst-42/etth1-96 (`foretell presets` lists them); "
    "--config and flags win over it.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with any of the settings below by the same names; flags win over it.",
)
@click.option("--restart", is_flag=True, help="Throw away an unfinished training.")
@click.option("--overwrite", is_flag=True, help="Replace the checkpoint that --out has.")
def command(
    recipe: str | None,
    file: Path | None,
    restart: bool,
    overwrite: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Train a model on a CSV file and measure it on the rows it has not seen.

    An interrupted training goes on from its last finished epoch when the command is given again.
    """
    given = {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in flags.items()
        if value not in (None, ())
    }
    settings = _read_preset(recipe) if recipe else {}
    arguments = _validate(settings | (_read_yaml(file) if file else {}) | given)

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
        panel = read_csv(
            arguments.data,
            timestamp_column=arguments.timestamp_column,
            channels=arguments.channels,
            frequency=Frequency.parse(arguments.frequency) if arguments.frequency else None,
        )
        with ConsoleProgress(Console(stderr=True)) as progress:
            trained = train(
                arguments.settings(),
                panel,
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


def _read_preset(name: str) -> dict[str, Any]:
    from foretell.presets import PresetError, preset

    try:
        return preset(name).settings
    except PresetError as error:
        raise _refusal(f"--preset: {error}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        settings = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise _refusal(f"{path}: not YAML: {error}") from None
    if not isinstance(settings, dict):
        raise _refusal(f"{path}: expected settings as 'name: value', one a line")
    return {str(key).replace("-", "_"): value for key, value in settings.items()}


def _validate(values: dict[str, Any]) -> Arguments:
    from foretell.commands.train_options import Arguments, arguments_of

    try:
        return Arguments.model_validate(arguments_of(values))
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        if first["type"] == "missing":
            raise _refusal(f"{flag} is missing; give it or set it in --config") from None
        problem = first["msg"].removeprefix("Value error, ")
        raise _refusal(f"{flag}: {problem}, got {first['input']!r}") from None
    except ValueError as error:
        raise _refusal(f"--{str(error).replace('_', '-', 1)}") from None


def _refusal(message: str) -> SystemExit:
    click.echo(f"foretell train: {message}", err=True)
    return SystemExit(2)
