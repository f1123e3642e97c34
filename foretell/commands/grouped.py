"""A command whose options have headings in its help."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

import click


class Option(click.Option):
    """An option with a heading in the help."""

    def __init__(
        self, heading: str, name: str, *, multiple: bool = False, **described: str
    ) -> None:
        flags = [f"--{name.replace('_', '-')}", name]
        super().__init__(flags, multiple=multiple, **described)  # type: ignore[arg-type]
        self.heading = heading


class GroupedCommand(click.Command):
    """A command with such options, which are made when they are asked for: torch takes seconds.

    Attributes:
        module: Its `options()` are those of the command.

    Args:
        without: Names of options that it has not.
    """

    module: str

    def __init__(self, *, without: Collection[str] = (), **described: Any) -> None:  # noqa: ANN401
        super().__init__(**described)
        self._without = without

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All of them."""
        if not any(isinstance(one, Option) for one in self.params):
            options = import_module(self.module).options()
            self.params += [one for one in options if one.name not in self._without]
        return super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them below their headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(option, "heading", "Options"), []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)
