"""`foretell sign`: sign a bundle with a private key."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import FILE, FOLDER


@click.command("sign", cls=Command, short_help="Sign a bundle with a private key.")
@click.argument("bundle", type=FOLDER)
@click.option(
    "--key",
    type=FILE,
    required=True,
    help="Private key in PEM on the curve P-256, P-384 or P-521, without a password.",
)
def command(bundle: Path, key: Path) -> None:
    """Sign BUNDLE, the folder of a bundle or of a model for its newest version.

    The signature is model.sig in the bundle's folder, by OpenSSF Model Signing. It replaces an
    earlier one. It covers the files of the manifest: remove others first. Servers with
    FORETELL_SIGNED_BY serve only signed bundles.
    """
    from foretell.bundle import layout
    from foretell.signing.sign import sign

    click.echo(f"written to {sign(layout.newest(bundle), key)}")
