"""`foretell publish`: copy a bundle into a repository."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import FILE, NEW_FOLDER


@click.command("publish", cls=Command, short_help="Copy a bundle into a repository.")
@click.argument("source")
@click.argument("destination")
@click.option("--name", help="Served name; the bundle's own by default.")
@click.option("--model-version", "version", help="Integer version; the newest plus one by default.")
@click.option(
    "--sign-with",
    "key",
    type=FILE,
    help="Private key in PEM that signs what is published (extra signing).",
)
@click.option(
    "--cache",
    type=NEW_FOLDER,
    envvar="FORETELL_CACHE",
    help="Folder for bundles fetched from a URL; ~/.cache/foretell by default.",
)
def command(
    source: str,
    destination: str,
    name: str | None,
    version: str | None,
    key: Path | None,
    cache: Path | None,
) -> None:
    """Copy the bundle SOURCE into the repository DESTINATION, as a version of a model.

    SOURCE is the folder of a bundle, or of a model for its newest version (MODEL@VERSION for
    another). Both may be in object storage: s3://bucket/prefix, gs://… or az://…. In a registry of
    containers both are oci://registry/path/name, which names the model, with :version for a version
    that is not the newest or next one; `docker login` saves the password. Checksums are verified
    first. Publishing is atomic: servers never see a partial version. Existing versions are never
    changed.

    A signature is kept under the same name and version. Under others, sign with --sign-with.
    """
    from foretell.bundle.placement import publish
    from foretell.storage.sources import find_bundle

    sign = None
    if key is not None:
        from foretell.signing.sign import Signer

        sign = Signer(key).signature
    bundle = find_bundle(source, cache)
    if "://" in destination:
        from foretell.storage.remote import open_remote

        remote = open_remote(destination)
        written = remote.publish(bundle, name=name, version=version, sign=sign)
    else:
        written = str(publish(bundle, Path(destination), name=name, version=version, sign=sign))
    click.echo(f"written to {written}")
