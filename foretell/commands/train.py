"""`foretell train`: from a table to a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack

import click

from foretell.commands.command import Command, option
from foretell.commands.options import (
    given_settings,
    read_panel,
    settings_options,
    training_options,
)


@click.command(
    "train",
    cls=Command,
    resumed="resumes after the last finished epoch",
    short_help="Train a model on a table.",
)
@option("--out", heading="The checkpoint", help="Checkpoint folder to write.")
@option(
    "--overwrite", heading="The checkpoint", is_flag=True, help="Replace an existing checkpoint."
)
@option("--restart", heading="The checkpoint", is_flag=True, help="Discard an unfinished training.")
@option("--tensorboard", heading="The checkpoint", help="Folder for TensorBoard events.")
@training_options
@settings_options
def command(restart: bool, overwrite: bool, **given: object) -> None:
    """Train a model on a table and measure it on its test split.

    To resume an interrupted training after its last finished epoch, repeat the command.
    """
    settings = given_settings(given)
    panel = read_panel(settings)

    from pathlib import Path

    from rich.console import Console

    from foretell.models.checkpoint import check_free
    from foretell.settings.given import needed, training_of
    from foretell.terminal.tables import print_test
    from foretell.training.logs import TensorBoardLog, Together
    from foretell.training.progress import ConsoleProgress, Progress
    from foretell.training.train import train

    training, out = training_of(settings), Path(str(needed(settings, "out")))
    check_free(out, overwrite=overwrite)
    with ExitStack() as stack:
        progress: Progress = stack.enter_context(ConsoleProgress(Console(stderr=True)))
        if settings.get("tensorboard") is not None:
            events = stack.enter_context(TensorBoardLog(Path(str(settings["tensorboard"]))))
            progress = Together((progress, events))
        trained = train(
            training, panel, out, restart=restart, overwrite=overwrite, progress=progress
        )
    print_test({training.arch: trained.info.test}, trained.info.frequency)
    click.echo(f"checkpoint written to {out}")
