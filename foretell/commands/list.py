"""`foretell list`: the bundles of a repository."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command


@click.command("list", cls=Command, short_help="Print the bundles of a repository.")
@click.argument("repository")
def command(repository: str) -> None:
    """Print the bundles in REPOSITORY.

    That is a folder, s3://bucket/prefix, gs://…, az://… or a model oci://registry/path/name.

    It shows which version is pinned, and which one is a challenger (`foretell promote`).
    Checksums and graphs are not checked; `foretell verify` checks them.
    """
    from foretell.promotion import open_versions
    from foretell.terminal.bundles import in_folder, in_remote, print_bundles, said_in

    bundles = in_remote(repository) if "://" in repository else in_folder(Path(repository))
    names = sorted({bundle.name for bundle in bundles})
    print_bundles(bundles, said_in(open_versions(repository), names))
