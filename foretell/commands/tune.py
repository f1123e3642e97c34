"""`foretell tune`: a search for the settings that `foretell train` takes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.commands.grouped import GroupedCommand
from foretell.commands.train import flags_given, read_preset, read_yaml, refusal, validate

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Of a search, not of a training.
_OWN = ("out", "tensorboard")


class _Tune(GroupedCommand):
    module = "foretell.commands.train_options"


@click.command("tune", cls=_Tune, without=_OWN)
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file that gets the best settings; the search is kept next to it.",
)
@click.option(
    "--minutes",
    required=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time for the search, from now on.",
)
@click.option(
    "--trainings", type=click.IntRange(min=1), help="How many at most; by default all in the time."
)
@click.option(
    "--search",
    "chosen",
    multiple=True,
    metavar="SETTING=a,b,…",
    help="Values to try of a setting, in place of the usual ones; may be given several times.",
)
@click.option(
    "--preset",
    "recipe",
    metavar="NAME",
    help="A published recipe to begin from; --config and flags win over it.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with any of the settings below by the same names; flags win over it.",
)
@click.option("--restart", is_flag=True, help="Throw away a search that is there.")
def command(
    out: Path,
    minutes: float,
    trainings: int | None,
    chosen: tuple[str, ...],
    recipe: str | None,
    file: Path | None,
    restart: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Search for settings, judged by the validation split alone.

    Settings that are given stay as they are. The others of those that are worth it are searched,
    and the context where none is given. The same command goes on with a search.
    """
    said = (read_preset(recipe) if recipe else {}) | (read_yaml(file) if file else {})
    given = {name: value for name, value in said.items() if name not in _OWN} | flags_given(flags)

    from foretell.commands.data_options import reading_of
    from foretell.data.errors import DataError
    from foretell.data.panel import check_bounds
    from foretell.data.reading import read
    from foretell.search_space import SearchError, first_of, read_choices, space_of
    from foretell.training.errors import TrainingError
    from foretell.training.preparation import targets_of
    from foretell.tuning import Search

    journal = out.with_name(out.name + ".search")
    try:
        choices = read_choices(chosen)
        # All that has to be there but for the context, which may be searched.
        known = {"context": 1, **given, **first_of(choices), "out": out}
        arguments = validate(known)
        for name, values in choices.items():
            for value in values:
                validate(known | {name: value})
        panel = read(arguments.data, reading_of(given), arguments.target or ())
        for note in panel.notes:
            click.echo(f"note: {note}", err=True)
        check_bounds(arguments.bounds, targets_of(arguments, panel.channels), panel)
        space = space_of(given, choices, panel)
        out.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            journal.unlink(missing_ok=True)
        search = Search(given, space, panel, journal)
        if done := len(search.ended):
            click.echo(f"going on after {done} trainings", err=True)
        search.run(minutes, trainings, _tell)
        best = search.best()
    except (DataError, SearchError, TrainingError) as error:
        raise refusal(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on with the search", err=True)
        raise SystemExit(130) from None
    text = _yaml(best)
    out.write_text(text)
    click.echo(text, nl=False)
    first, found = search.ended[0], search.study.best_trial
    click.echo(
        f"best of {len(search.study.trials)} trainings: validation MSE {found.value:.4f}, "
        f"{first.value:.4f} with the first settings; written to {out}",
        err=True,
    )


def _tell(trial: FrozenTrial) -> None:
    """One line a training."""
    settings = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.params.items()
    )
    from optuna.trial import TrialState

    best = min(trial.intermediate_values.values(), default=None)
    if "refused" in trial.user_attrs:
        came = trial.user_attrs["refused"]
    elif best is None:
        came = "out of time"
    else:
        given_up = ", given up" if trial.state == TrialState.PRUNED else ""
        came = f"validation {best:.4f} after {len(trial.intermediate_values)} epochs{given_up}"
    click.echo(f"training {trial.number + 1}: {came}: {settings}", err=True)


def _yaml(settings: dict[str, Any]) -> str:
    import yaml

    from foretell.data.reading import Reading

    # What names files and columns is text, even where it looks like a number.
    names = {"data", "target", *Reading.model_fields}
    plain = {
        name: value if name in names else _number_of(value) for name, value in settings.items()
    }
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return text


def _number_of(value: object) -> object:
    """The number that a text is, and anything else as it is."""
    for kind in (int, float):
        with suppress(ValueError):
            if isinstance(value, str) and str(number := kind(value)) == value:
                return number
    return value
