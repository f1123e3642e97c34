"""`foretell presets`: the published recipes."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("presets", cls=Command, short_help="List the published recipes, or print one.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the published recipes that `foretell train --preset` takes.

    With NAME, print that recipe as a file for `--config`, which you can change.
    """
    import yaml

    from foretell.settings.presets import preset, presets
    from foretell.terminal.tables import print_presets

    if name is None:
        print_presets(presets().values())
        return
    found = preset(name)
    click.echo(f"# {found.title}\n# {found.source}")
    if found.published is not None:
        mse, mae = found.published
        click.echo(f"# published: MSE {mse:.3f}, MAE {mae:.3f}")
    click.echo(yaml.safe_dump(found.settings, sort_keys=False), nl=False)
