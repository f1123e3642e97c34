"""`foretell serve`: answer forecasts from a repository of bundles."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("serve", cls=Command, short_help="Serve a repository of bundles over HTTP.")
@click.option("--models", help="The repository of bundles: a folder, s3://…, gs://… or az://….")
@click.option("--host", help="Address to listen on; 127.0.0.1 unless given.")
@click.option("--port", type=int, help="Port to listen on; 8000 unless given.")
@click.option("--root-path", help="What a proxy puts before all paths, such as /forecasts.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where to run models.")
@click.option(
    "--workers", type=int, help="Processes that read requests and write answers; 1 unless given."
)
@click.option("--threads", type=int, help="Threads of each that run models; as many as CPUs.")
@click.option(
    "--load",
    type=click.Choice(["start", "on-demand"]),
    help="When models are loaded; at the start unless given.",
)
@click.option("--operations-port", type=int, help="Another port for probes and metrics.")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="json unless given.")
def command(**flags: object) -> None:
    """Serve a repository of bundles over HTTP.

    Every flag, and more, can be set as a FORETELL_ variable: FORETELL_MODELS, FORETELL_MAX_BATCH, …
    A flag wins over its variable.
    """
    # Before all that takes time: until it is loaded signals would end the process as they do any.
    from foretell.service.signals import end_at_once, stop_signals

    with stop_signals(end_at_once):
        from foretell.service.settings import Settings
        from foretell.service.start import serve

        serve(Settings.read(**{name: one for name, one in flags.items() if one is not None}))
