"""`foretell gc`: remove unreferenced files from object storage."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("gc", cls=Command, short_help="Remove unreferenced files from object storage.")
@click.argument("repository")
@click.option(
    "--empty", is_flag=True, help="Allow a repository without versions, and remove all its files."
)
def command(repository: str, empty: bool) -> None:
    """Remove files of REPOSITORY (s3://bucket/prefix, gs://… or az://…) that no version uses.

    A file that no version uses is moved to trash/. A run at least 24 hours later removes it. Run
    this command once a day, one run at a time; bundles may be published meanwhile.
    """
    from foretell.storage.collecting import collect
    from foretell.storage.errors import StorageError
    from foretell.storage.location import open_location
    from foretell.storage.remote import is_in_registry

    if is_in_registry(repository):
        raise StorageError(
            f"{repository}: the registry itself removes what no tag names; its documentation says "
            "how to remove tags"
        )
    done = collect(open_location(repository), empty=empty)
    click.echo(
        f"{done.removed:,} files removed, {done.moved:,} moved to trash, {done.restored:,} restored"
    )
    if done.failures:
        raise StorageError("\n".join(done.failures))
