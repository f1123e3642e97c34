"""What commands share that have the end of a file forecast, by a server or a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from foretell.commands.grouped import GroupedCommand
from foretell.commands.train import flags_given, refusal

if TYPE_CHECKING:
    from foretell.client import Client
    from foretell.forecast_file import Answers
    from foretell.service.settings import DeviceChoice

Function = TypeVar("Function", bound=Callable[..., Any])

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_HOLD_BACK = click.option(
    "--hold-back",
    type=click.IntRange(min=0),
    default=0,
    help="Rows at the end that are not sent, to see what followed.",
)
_OPTIONS = (
    _FILE,
    click.option(
        "--model", help="Served name, or name@version; needed when the server has more than one."
    ),
    click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server."),
    click.option(
        "--key",
        envvar="FORETELL_KEY",
        show_envvar=True,
        help="Of a server that has keys; in the variable nobody else sees it.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        help="Seconds to wait.",
    ),
    _HOLD_BACK,
)


class FileCommand(GroupedCommand):
    """A command that reads a file as trainings do, for a model that is there."""

    module = "foretell.commands.data_options"

    def __init__(self, **described: Any) -> None:  # noqa: ANN401
        # These the model says.
        super().__init__(without=("channels", "frequency"), **described)


def server_options(function: Function) -> Function:
    """Give a command the file and the options of the server."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def bundle_options(function: Function) -> Function:
    """Give a command a bundle, the file and the options that are left without a server."""
    bundle = click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
    device = click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="What runs the model.",
    )
    for option in (_HOLD_BACK, device, _FILE, bundle):
        function = option(function)
    return function


class Asked(Protocol):
    """What is asked for."""

    @property
    def file(self) -> Path:
        """The file."""

    @property
    def model(self) -> str | None:
        """The model, by its name, or name@version."""

    @property
    def hold_back(self) -> int:
        """Rows at the end of the file that are not sent."""

    def opened(self) -> AbstractContextManager[Client]:
        """Who is asked; raises a ValueError if it cannot be."""


@dataclass(frozen=True)
class AskedServer:
    """What `server_options` say; see there."""

    file: Path
    model: str | None
    url: str
    key: str | None
    timeout: float
    hold_back: int

    def opened(self) -> AbstractContextManager[Client]:
        """See `Asked`."""
        from foretell.client import Client

        return Client(self.url, key=self.key, timeout=self.timeout, retry_for=self.timeout)


@dataclass(frozen=True)
class AskedBundle:
    """What `bundle_options` say; see there."""

    bundle: Path
    file: Path
    device: DeviceChoice
    hold_back: int
    model: str | None = None

    def opened(self) -> AbstractContextManager[Client]:
        """See `Asked`."""
        from foretell.in_process import opened

        return opened(self.bundle, self.device)


def ask(
    asked: Asked,
    flags: Mapping[str, str | None],
    options: Mapping[str, Any],
    series: Sequence[str] | None,
    *,
    one: bool = False,
) -> Answers:
    """Read the file, send it and tell on stderr what there is to tell; ends the command on errors.

    Args:
        asked: The file and who is asked.
        flags: How the file is read.
        options: Of the request.
        series: Names of those to send; all if there are none.
        one: Whether it must be one.
    """
    from foretell.client.errors import ForetellError
    from foretell.commands.data_options import reading_of
    from foretell.forecast_file import choose_model, read_histories, request_forecasts

    try:
        how = reading_of(flags_given(flags))
        with asked.opened() as client:
            card = choose_model(client.models(), asked.model)
            histories, notes = read_histories(asked.file, card, how, series or (), asked.hold_back)
            if one and len(histories) > 1:
                raise ValueError(
                    f"{asked.file}: {len(histories):,} series; choose one with --series, such as "
                    f"{histories[0].name}"
                )
            for note in notes:
                click.echo(f"note: {note}", err=True)
            answers = request_forecasts(
                client, asked.model or card.name, card, histories, options, asked.file.stem
            )
    except (ForetellError, ValueError) as error:
        raise refusal(str(error)) from None
    _tell(answers)
    if not answers.forecasts:
        raise refusal("no series has a forecast")
    return answers


def _tell(answers: Answers) -> None:
    for warning in dict.fromkeys(answers.warnings):
        click.echo(f"warning: {warning}", err=True)
    for name, message in answers.failures.items():
        click.echo(f"warning: series {name} has no forecast: {message}", err=True)
    unsure = [one.series for one in answers.forecasts if one.ill_conditioned]
    if unsure:
        names = f" (series {', '.join(unsure)})" if unsure[0] else ""
        click.echo(
            f"warning: rounding may have decided what the model looked at{names}: another machine "
            "may forecast otherwise",
            err=True,
        )


def picture_option(what: str) -> Callable[[Function], Function]:
    """An option of a file to draw to; see `check_picture`.

    Args:
        what: Is drawn.
    """
    return click.option(
        "--plot",
        "picture",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help=f"Draw {what} to this file (png, svg or pdf).",
    )


def check_picture(path: Path | None) -> None:
    """End the command where a picture cannot be written, before anything else is done."""
    if path is None:
        return
    # Missing, it is missed now, not after the server has answered.
    import_module("matplotlib")
    kinds = (".png", ".svg", ".pdf")
    if not path.parent.is_dir():
        raise refusal(f"{path}: there is no folder {path.parent}")
    if path.suffix not in kinds:
        raise refusal(f"{path}: expected a name that ends with {', '.join(kinds)}")
