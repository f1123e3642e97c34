"""The base of all commands: exit codes, error messages, and headings in the help."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import click

from foretell.bundle.errors import BundleError

Function = TypeVar("Function", bound=Callable[..., Any])


class Option(click.Option):
    """An option below a heading of the help."""

    def __init__(self, *given: Any, heading: str = "Options", **described: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **described)
        self.heading = heading


def option(
    *names: str,
    heading: str = "Options",
    **described: Any,  # noqa: ANN401
) -> Callable[[Function], Function]:
    """`click.option` with a heading."""
    return click.option(*names, cls=Option, heading=heading, **described)


class Command(click.Command):
    """A command that exits with 2 and one line on stderr after an error of foretell or the OS.

    Args:
        resumed: Verb phrase for the message after an interrupt, if repeating the command resumes.
        refused: Exit code after an error of a bundle.
    """

    def __init__(
        self,
        *given: Any,  # noqa: ANN401
        resumed: str | None = None,
        refused: int = 2,
        **described: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*given, **described)
        self._resumed = resumed
        self._refused = refused

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; `ctx.obj` frees what it holds before its error is printed."""
        try:
            with ExitStack() as ctx.obj:
                return super().invoke(ctx)
        except KeyboardInterrupt:
            if self._resumed is None:
                raise
            click.echo(f"interrupted; the same command {self._resumed}", err=True)
            raise SystemExit(130) from None
        except Exception as error:
            if type(error).__module__.startswith("foretell."):
                problem = str(error)
            elif isinstance(error, OSError):
                # An error of a copy names two files; the second is the one being written.
                file = error.filename2 or error.filename
                problem = f"{file}: " * bool(file) + (error.strerror or str(error))
            else:
                raise
            click.echo(f"foretell {self.name}: {problem}", err=True)
            raise SystemExit(self._refused if isinstance(error, BundleError) else 2) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(one, "heading", "Options"), []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)
