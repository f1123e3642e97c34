"""`foretell train`: from a CSV file to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from foretell.commands.grouped import GroupedCommand

if TYPE_CHECKING:
    from foretell.commands.train_options import Arguments
    from foretell.data.panel import Panel

_PANEL = "foretell.train.panel"
_CONFIG = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Train(GroupedCommand):
    module = "foretell.commands.train_options"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the data first: it is told at once what is wrong with it, torch takes seconds."""
        if not {*ctx.help_option_names} & {*args}:
            ctx.meta[_PANEL] = _read_data(list(args))
        return super().parse_args(ctx, args)


@click.command("train", cls=_Train)
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
    type=_CONFIG,
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
    """Train a model on a file and measure it on the rows it has not seen.

    An interrupted training goes on from its last finished epoch when the command is given again.
    """
    given = flags_given(flags)
    settings = read_preset(recipe) if recipe else {}
    arguments = validate(settings | (read_yaml(file) if file else {}) | given)
    if arguments.out.exists() and not overwrite:
        raise refusal(f"{arguments.out}: exists already; --overwrite replaces it")
    panel: Panel = click.get_current_context().meta[_PANEL]

    from rich.console import Console

    from foretell.data.errors import DataError
    from foretell.models.checkpoint import CheckpointError, check_free
    from foretell.terminal import print_test
    from foretell.training.errors import TrainingError
    from foretell.training.logs import TensorBoardLog, Together
    from foretell.training.progress import ConsoleProgress, Progress
    from foretell.training.train import train

    try:
        check_free(arguments.out, overwrite=overwrite)
        for note in panel.notes:
            click.echo(f"note: {note}", err=True)
        with ExitStack() as stack:
            progress: Progress = stack.enter_context(ConsoleProgress(Console(stderr=True)))
            if arguments.tensorboard is not None:
                events = stack.enter_context(TensorBoardLog(arguments.tensorboard))
                progress = Together((progress, events))
            trained = train(
                arguments.settings(),
                panel,
                arguments.out,
                restart=restart,
                overwrite=overwrite,
                progress=progress,
            )
    except (CheckpointError, DataError, TrainingError) as error:
        raise refusal(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on after the last finished epoch", err=True)
        raise SystemExit(130) from None
    print_test({arguments.arch: trained.info.test}, trained.info.frequency)
    click.echo(f"checkpoint written to {arguments.out}")


def flags_given(flags: Mapping[str, str | tuple[str, ...] | None]) -> dict[str, str]:
    """Those flags that were given; one that was given several times is one list."""
    return {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in flags.items()
        if value is not None and value != ()
    }


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset, by their names as flags."""
    from foretell.presets import PresetError, preset

    try:
        return preset(name).settings
    except PresetError as error:
        raise refusal(f"--preset: {error}") from None


def _read_data(args: list[str]) -> Panel | None:
    """What the flags and the YAML file say is to be read; None if they name no file."""
    from foretell.commands import data_options
    from foretell.commands.grouped import Option
    from foretell.data.reading import read, split_names

    own = ("data", "target")
    known = [click.Option(["--config", "file"], type=_CONFIG), *(Option("", each) for each in own)]
    command = click.Command(
        "data",
        params=[*known, *data_options.options()],
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    flags = command.make_context("data", args, resilient_parsing=True).params
    file = flags.pop("file")
    given = {name: value for name, value in flags.items() if value is not None}
    given = (read_yaml(file) if file else {}) | given
    path, target = data_options.path_of(given), given.get("target")
    needed = split_names(target) if isinstance(target, str) else ()
    try:
        return None if path is None else read(path, data_options.reading_of(given), needed)
    except ValueError as error:
        raise refusal(str(error)) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings of a YAML file, by their names as flags."""
    import yaml

    from foretell.settings_file import load

    try:
        settings = load(path.read_bytes())
    except yaml.YAMLError as error:
        raise refusal(f"{path}: {error}") from None
    if not isinstance(settings, dict):
        raise refusal(f"{path}: expected settings as 'name: value', one a line")
    return {str(key).replace("-", "_"): value for key, value in settings.items()}


def validate(values: dict[str, Any]) -> Arguments:
    """All arguments, from settings by their names as flags; ends the command where one is wrong."""
    from foretell.commands.data_options import problem_of
    from foretell.commands.train_options import Arguments, arguments_of

    try:
        return Arguments.model_validate(arguments_of(values))
    except ValidationError as error:
        raise refusal(problem_of(error)) from None
    except ValueError as error:
        raise refusal(f"--{str(error).replace('_', '-', 1)}") from None


def refusal(message: str) -> SystemExit:
    """The end of the command that runs, which says why."""
    click.echo(f"foretell {click.get_current_context().command.name}: {message}", err=True)
    return SystemExit(2)
