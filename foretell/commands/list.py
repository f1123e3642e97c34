"""`foretell list`: the bundles of a repository."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command


@click.command("list", cls=Command, short_help="Print the bundles of a repository.")
@click.argument("repository")
def command(repository: str) -> None:
    """Print the bundles in REPOSITORY: a folder, s3://bucket/prefix, gs://… or az://….

    Checksums and graphs are not checked; `foretell verify` checks them.
    """
    from foretell.terminal.bundles import in_folder, in_storage, print_bundles

    print_bundles(in_storage(repository) if "://" in repository else in_folder(Path(repository)))
