"""The option `--bounds` of the commands that take a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from foretell.bundle.bounds import Bound


def _read(
    _ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Bound] | None:
    """The bounds; None where the option is not given."""
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
    callback=_read,
    help="Limits of channels that no forecast goes beyond, such as irradiance=0:,humidity=0:100; "
    "by default those of the checkpoint.",
)
