"""`foretell report`: one page about a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from foretell.commands.command import Command
from foretell.commands.options import FOLDER, NEW_FILE, accept, signed_by_option


@click.command("report", cls=Command, short_help="Write an HTML page about a bundle.")
@click.argument("bundle", type=FOLDER)
@click.option("--out", type=NEW_FILE, help="Page to write; NAME-VERSION.html by default.")
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
@signed_by_option
def command(bundle: Path, out: Path | None, overwrite: bool, signed_by: tuple[Path, ...]) -> None:
    """Write one HTML page about BUNDLE: accuracy, intervals, an example and attention.

    BUNDLE is a bundle, or a model's folder for its newest bundle. The page needs no other file and
    no network.
    """
    from foretell.bundle import layout, manifest
    from foretell.files import check_writable, written_whole

    folder = accept(layout.newest(bundle), signed_by)
    about = manifest.read(folder)
    page = out or Path(f"{about.name}-{about.version}.html")
    check_writable(page, overwrite=overwrite)

    from foretell.report.page import render

    text = render(folder)
    with written_whole(page) as hidden:
        hidden.write_text(text, "utf-8")
    click.echo(f"written to {page}")
