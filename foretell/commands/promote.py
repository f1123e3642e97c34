"""`foretell promote`: make a bundle the next version of a model."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command


@click.command("promote", cls=Command, short_help="Copy a bundle into a repository.")
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("repository", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="The served name; the bundle's own by default.")
@click.option("--version", help="A whole number; the one after the newest by default.")
def command(bundle: Path, repository: Path, name: str | None, version: str | None) -> None:
    """Copy BUNDLE, from any folder, into REPOSITORY as a version of a model.

    Its sums are checked first. A server that watches REPOSITORY sees it whole; no version that is
    there is changed.
    """
    from foretell.bundle.errors import BundleError
    from foretell.bundle.placement import promote

    # Of a URL, a path has one slash.
    if repository.parts and repository.parts[0] in ("s3:", "gs:", "az:"):
        raise click.UsageError("REPOSITORY is a folder; `foretell push` takes a URL")
    try:
        folder = promote(bundle, repository, name=name, version=version)
    except BundleError as error:
        click.echo(f"foretell promote: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(f"written to {folder}")
