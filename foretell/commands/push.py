"""`foretell push`: make a bundle the next version of a model in object storage."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command


@click.command("push", cls=Command, short_help="Copy a bundle into object storage.")
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("location")
@click.option("--name", help="The served name; the bundle's own by default.")
@click.option("--version", help="A whole number; the one after the newest by default.")
def command(bundle: Path, location: str, name: str | None, version: str | None) -> None:
    """Copy BUNDLE to LOCATION, s3://bucket/prefix, gs://… or az://…, as a version of a model.

    Its sums are checked first, and its manifest is written last: servers see it whole or not at
    all. No version that is there is changed. Into a folder: `foretell promote`.
    """
    from foretell.bundle.errors import BundleError
    from foretell.storage.errors import StorageError
    from foretell.storage.location import open_location
    from foretell.storage.push import push

    try:
        written = push(bundle, open_location(location), name=name, version=version)
    except (BundleError, StorageError) as error:
        click.echo(f"foretell push: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(f"written to {written}")
