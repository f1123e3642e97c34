"""`foretell report`: a bundle as one page."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import FOLDER, NEW_FILE


@click.command("report", cls=Command, short_help="Write what is known of a bundle as one page.")
@click.argument("bundle", type=FOLDER)
@click.option("--out", type=NEW_FILE, help="The page; NAME-VERSION.html by default.")
@click.option("--overwrite", is_flag=True, help="Replace the page if it is there.")
def command(bundle: Path, out: Path | None, overwrite: bool) -> None:
    """Write what is known of BUNDLE as one HTML page: accuracy, intervals, an example, attention.

    BUNDLE is a bundle, or a model's folder of bundles, of which the newest is taken. The page needs
    no other file and no network.
    """
    from foretell.bundle import layout, manifest
    from foretell.files import check_writable, written_whole

    folder = layout.newest(bundle)
    about = manifest.read(folder)
    page = out or Path(f"{about.name}-{about.version}.html")
    check_writable(page, overwrite=overwrite)

    from foretell.report.page import render

    text = render(folder)
    with written_whole(page) as hidden:
        hidden.write_text(text, "utf-8")
    click.echo(f"written to {page}")
