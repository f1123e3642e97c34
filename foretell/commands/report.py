"""`foretell report`: a bundle as one page."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import click

from foretell.commands.train import refusal


@click.command("report")
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page; NAME-VERSION.html by default.",
)
@click.option("--overwrite", is_flag=True, help="Replace the page if it is there.")
def command(bundle: Path, output: Path | None, overwrite: bool) -> None:
    """Write what is known of BUNDLE as one HTML page: accuracy, intervals, an example, attention.

    BUNDLE is a bundle, or a model's folder of bundles, of which the newest is taken. The page needs
    no other file and no network.
    """
    from foretell.bundle import layout, manifest
    from foretell.bundle.errors import BundleError

    try:
        folder = layout.newest(bundle)
        about = manifest.read(folder)
        page = output or Path(f"{about.name}-{about.version}.html")
        if not page.parent.is_dir():
            raise refusal(f"{page}: there is no folder {page.parent}")
        if page.exists() and not overwrite:
            raise refusal(f"{page}: exists already; --overwrite replaces it")

        from foretell.report.page import render

        text = render(folder)
    except BundleError as error:
        raise refusal(str(error)) from None
    hidden = page.with_name(f".{page.name}.{uuid4().hex[:8]}")
    try:
        hidden.write_text(text, "utf-8")
        hidden.replace(page)
    finally:
        hidden.unlink(missing_ok=True)
    click.echo(f"written to {page}")
