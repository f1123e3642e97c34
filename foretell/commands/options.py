"""Options that several commands share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from foretell.commands.command import Function, option
from foretell.files import check_writable
from foretell.timeaxis.gaps import Filling

if TYPE_CHECKING:
    from foretell.bundle.bounds import Bound
    from foretell.data.panel import Panel

SERVER = "http://127.0.0.1:8000"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)

_DATA = "How the data is read"
# Commands that take a model have these from it.
_OF_MODELS = (
    option("--channels", heading=_DATA, help="Columns to read, such as a,b [all numbers]."),
    option("--frequency", heading=_DATA, help="Spacing of rows, such as h or 15min [found]."),
)
_OF_TABLES = (
    option("--time-column", heading=_DATA, help="Column of the timestamps, or year,month [found]."),
    option("--id-column", heading=_DATA, help="Column of series names [found]."),
    option(
        "--date-format",
        heading=_DATA,
        help="Format such as %d.%m.%Y, or s or ms since 1970 [found].",
    ),
    option(
        "--time-zone", heading=_DATA, help="Time zone of the timestamps, such as Europe/Berlin."
    ),
    option("--decimal", heading=_DATA, help="Decimal mark of the numbers, . or , [found]."),
)
_GAPS = (
    option(
        "--missing",
        heading=_DATA,
        type=click.Choice(get_args(Filling)),
        help="How to treat missing rows and values: fail, or fill them in [error].",
    ),
    option(
        "--max-gap",
        heading=_DATA,
        type=click.IntRange(min=1),
        help="Longest gap to fill in, in steps; longer gaps split a series [12].",
    ),
)
_OF_FILES = (*_OF_TABLES, *_GAPS)
_COVARIATES = (
    option(
        "--future-covariates", heading="The data", help="Columns that are known for the horizon."
    ),
    option("--past-covariates", heading="The data", help="Columns that are read and not forecast."),
    option(
        "--static-covariates", heading="The data", help="Columns with one value for each series."
    ),
)
_TRAINING = (
    option("--data", heading="The data", help="The table: CSV, Parquet or Arrow, with timestamps."),
    option("--target", heading="The data", help="Channels to forecast, separated by commas [all]."),
    option("--arch", heading="The model", help="Architecture, such as patchtst or autoformer."),
    option(
        "--context", heading="The model", type=int, help="Steps of history that the model reads."
    ),
    option("--horizon", heading="The model", type=int, help="Steps that the model forecasts."),
    option(
        "--bounds",
        heading="The model",
        multiple=True,
        metavar="CHANNEL=LOW:HIGH,…",
        help="Bounds that forecasts are clipped to, such as humidity=0:100.",
    ),
    option("--epochs", heading="The training", type=int, help="Maximum number of epochs [10]."),
    option(
        "--splits", heading="The training", help="Shares of train, validation, test [0.7,0.1,0.2]."
    ),
    option(
        "--cut-at",
        heading="The training",
        help="Date at which the test split of all series begins.",
    ),
    option("--seed", heading="The training", type=int, help="Random seed [0]."),
    option("--device", heading="The training", help="auto, cpu or cuda [auto]."),
)
_SETTINGS = (
    option(
        "--preset",
        heading="Other settings",
        metavar="NAME",
        help="Published recipe; `foretell presets` lists them.",
    ),
    option(
        "--config",
        heading="Other settings",
        type=FILE,
        help="YAML file of settings; they override the preset.",
    ),
    option(
        "--set",
        "words",
        heading="Other settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting, such as loss=mae or model.d_model=64; repeatable. `foretell settings` lists "
        "them.",
    ),
)


def reading_options(function: Function) -> Function:
    """Add the options for reading a file to a command that takes a model."""
    return _with(function, _OF_FILES)


def table_options(function: Function) -> Function:
    """Add the options for reading a file whose gaps are not filled."""
    return _with(function, _OF_TABLES)


def all_reading_options(function: Function) -> Function:
    """Add all options for reading a file to a command."""
    return _with(function, (*_OF_MODELS, *_COVARIATES, *_OF_FILES))


def training_options(function: Function) -> Function:
    """Add the options for the data and the most common settings of a training to a command."""
    return _with(function, (*_TRAINING, *_OF_MODELS, *_COVARIATES, *_OF_FILES))


def settings_options(function: Function) -> Function:
    """Add `--preset`, `--config` and `--set` to a command."""
    return _with(function, _SETTINGS)


def given_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of `training_options` and `settings_options`.

    Raises:
        RefusedError: a preset, a file or a setting cannot be read.
    """
    from foretell.settings.given import gather

    flags = dict(given)
    recipe, file, words = (flags.pop(name) for name in ("preset", "config", "words"))
    return gather(recipe, file, words, flags)


def read_panel(settings: dict[str, Any]) -> Panel:
    """Read the data of a training, and print the notes on it.

    Raises:
        RefusedError: no file is named, or a reading option is wrong.
        DataError: the file cannot be read.
    """
    from foretell.data.reading import read, split_names
    from foretell.settings.given import needed, reading_of

    target = settings.get("target") or ()
    targets = split_names(target) if isinstance(target, str) else target
    panel = read(Path(str(needed(settings, "data"))), reading_of(settings), targets)
    print_notes(panel.notes)
    return panel


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on the data to stderr."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _with(function: Function, options: tuple[Callable[[Function], Function], ...]) -> Function:
    for each in reversed(options):
        function = each(function)
    return function


def _read_bounds(
    _ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Bound] | None:
    """Bounds; None without the option."""
    from pydantic import TypeAdapter, ValidationError

    from foretell.bundle.bounds import Bounds

    try:
        return TypeAdapter(Bounds).validate_python(texts) if texts else None
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise click.BadParameter(f"{place}{problem}") from None


bounds_option = click.option(
    "--bounds",
    multiple=True,
    callback=_read_bounds,
    metavar="CHANNEL=LOW:HIGH,…",
    help="Bounds that forecasts are clipped to, such as irradiance=0:,humidity=0:100; the "
    "checkpoint's by default.",
)


def _read_levels(
    _ctx: click.Context, _option: click.Parameter, text: str | None
) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter("expected levels such as 0.1,0.9") from None


levels_option = click.option(
    "--quantiles", callback=_read_levels, help="Quantile levels, such as 0.1,0.9."
)
horizon_option = click.option(
    "--horizon", type=click.IntRange(min=1), help="Steps to forecast; the model's by default."
)

signed_by_option = click.option(
    "--signed-by",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Public key in PEM: one of them must have signed the bundle. Repeatable; those of "
    "FORETELL_SIGNED_BY by default.",
)


def accept(bundle: Path, signed_by: Sequence[Path]) -> Path:
    """The folder from which a command reads a bundle until it ends; see `foretell.signed`.

    Args:
        bundle: Folder of a bundle.
        signed_by: Files of public keys.

    Raises:
        BundleError: the bundle is damaged, or is not signed as required.
        StartError: a key cannot be used.
    """
    from foretell.signed import accepted

    held = click.get_current_context().obj
    held.enter_context(_exit_when_terminated())
    folder: Path = held.enter_context(accepted(bundle, signed_by))
    return folder


@contextmanager
def _exit_when_terminated() -> Iterator[None]:
    """Let SIGTERM exit, which removes the copy of a bundle, unless the command handles it."""
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


repository_option = click.option(
    "--repository",
    required=True,
    envvar="FORETELL_MODELS",
    help="A folder, s3://bucket/prefix, gs://…, az://… or oci://registry/path/name; "
    "FORETELL_MODELS by default.",
)


def server_options(function: Function) -> Function:
    """Add the options of a command that asks a server."""
    address = click.option("--url", default=SERVER, help=f"URL of the server; {SERVER} by default.")
    key = click.option("--key", envvar="FORETELL_KEY", help="Its API key (or FORETELL_KEY).")
    return address(key(function))


def ledger_options(function: Function) -> Function:
    """Add the options that choose series of a ledger."""
    frequency = click.option("--frequency", help="Only series of this frequency, such as h.")
    namespace = click.option(
        "--namespace", help="Only series of this namespace of keys, for admin keys."
    )
    return frequency(namespace(function))


def plot_option(what: str) -> Callable[[Function], Function]:
    """An option for a file to draw to; see `check_picture`.

    Args:
        what: Content of the picture, for the help.
    """
    return click.option(
        "--plot", "picture", type=NEW_FILE, help=f"Draw {what} to this file (png, svg or pdf)."
    )


def check_picture(path: Path | None) -> None:
    """Check, before a long computation, that a picture can be drawn.

    Raises:
        RefusedError: the picture cannot be written.
        ImportError: matplotlib is missing.
    """
    if path is not None:
        import_module("matplotlib")
        check_writable(path, (".png", ".svg", ".pdf"))
