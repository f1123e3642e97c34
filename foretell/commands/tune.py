"""`foretell tune`: a search for the settings that `foretell train` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.commands.command import Command, option
from foretell.commands.options import (
    NEW_FILE,
    given_settings,
    read_panel,
    settings_options,
    training_options,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@click.command(
    "tune",
    cls=Command,
    resumed="resumes the search",
    short_help="Search for settings of a training.",
)
@option(
    "--out",
    heading="The search",
    required=True,
    type=NEW_FILE,
    help="YAML file for the best settings; OUT.search next to it keeps the search.",
)
@option(
    "--minutes",
    heading="The search",
    required=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of this run.",
)
@option(
    "--trainings",
    heading="The search",
    type=click.IntRange(min=1),
    help="Maximum number of trainings; unlimited by default.",
)
@option(
    "--search",
    "chosen",
    heading="The search",
    multiple=True,
    metavar="NAME=a,b,…",
    help="Setting and the values to try instead of the usual ones; repeatable.",
)
@option("--restart", heading="The search", is_flag=True, help="Discard an existing search.")
@training_options
@settings_options
def command(
    out: Path,
    minutes: float,
    trainings: int | None,
    chosen: tuple[str, ...],
    restart: bool,
    **given: object,
) -> None:
    """Search for settings with the lowest error on the validation split.

    Settings that you give are fixed. The search covers the other common ones, such as learning_rate
    and model.d_model, and the context. To resume a search, repeat the command.
    """
    import yaml

    from foretell.data.panel import check_bounds
    from foretell.training.preparation import targets_of
    from foretell.tuning.search import Search
    from foretell.tuning.space import first_of, read_choices, space_of, training_with

    settings = given_settings(given)
    settings = {name: one for name, one in settings.items() if name not in ("out", "tensorboard")}
    choices = read_choices(chosen)
    # The context may be searched; the other required settings must be given.
    known = {"context": 1} | settings
    training = training_with(known, first_of(choices))
    for name, values in choices.items():
        for value in values:
            training_with(known, first_of(choices) | {name: value})
    panel = read_panel(settings)
    check_bounds(training.bounds, targets_of(training, panel.channels, panel.covariates), panel)
    space = space_of(settings, choices, panel)
    out.parent.mkdir(parents=True, exist_ok=True)
    journal = out.with_name(out.name + ".search")
    if restart:
        journal.unlink(missing_ok=True)
    search = Search(settings, space, panel, journal)
    if done := len(search.ended):
        click.echo(f"resuming after {done} trainings", err=True)
    search.run(minutes, trainings, _tell)
    text = yaml.safe_dump(search.best(), sort_keys=False, allow_unicode=True)
    out.write_text(text, "utf-8")
    click.echo(text, nl=False)
    first, found = search.ended[0], search.study.best_trial
    click.echo(
        f"best of {len(search.study.trials)} trainings: validation MSE {found.value:.4f}, "
        f"{first.value:.4f} with the first settings; written to {out}",
        err=True,
    )


def _tell(trial: FrozenTrial) -> None:
    """Print one line for a training."""
    from optuna.trial import TrialState

    settings = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.params.items()
    )
    best = min(trial.intermediate_values.values(), default=None)
    if "refused" in trial.user_attrs:
        came = trial.user_attrs["refused"]
    elif best is None:
        came = "out of time"
    else:
        given_up = ", given up" if trial.state == TrialState.PRUNED else ""
        came = f"validation {best:.4f} after {len(trial.intermediate_values)} epochs{given_up}"
    click.echo(f"training {trial.number + 1}: {came}: {settings}", err=True)
