"""`foretell gc`: remove files from object storage that no bundle has."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("gc", cls=Command, short_help="Remove files of no bundle from object storage.")
@click.argument("repository")
@click.option(
    "--empty", is_flag=True, help="Remove all files of a repository without versions, too."
)
def command(repository: str, empty: bool) -> None:
    """Remove the files of REPOSITORY, s3://bucket/prefix, gs://… or az://…, that no version names.

    A file that no version names is moved to trash/, and removed by a run at least 24 hours later.
    Run it once a day, one at a time; bundles may be published meanwhile.
    """
    from foretell.storage.errors import StorageError
    from foretell.storage.location import open_location
    from foretell.storage.repository import collect

    done = collect(open_location(repository), empty=empty)
    click.echo(
        f"{done.removed:,} files removed, {done.moved:,} moved to trash, {done.restored:,} restored"
    )
    if done.failures:
        raise StorageError("\n".join(done.failures))
