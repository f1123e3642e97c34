"""`foretell list`: the bundles of a repository."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("list")
@click.argument("repository")
def command(repository: str) -> None:
    """Print the bundles in REPOSITORY, a folder, s3://bucket/prefix, gs://… or az://….

    Sizes of bundles, their sums and graphs are not looked at: `foretell verify` does.
    """
    from foretell.bundle.errors import BundleError
    from foretell.listing import in_folder, in_storage, print_bundles
    from foretell.storage.errors import StorageError

    try:
        bundles = in_storage(repository) if "://" in repository else in_folder(Path(repository))
    except (BundleError, StorageError, OSError) as error:
        click.echo(f"foretell list: {error}", err=True)
        raise SystemExit(2) from None
    print_bundles(bundles)
