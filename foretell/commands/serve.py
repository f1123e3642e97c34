"""`foretell serve`: serve a repository of bundles over HTTP."""

from __future__ import annotations

import click

from foretell.commands.command import Command


@click.command("serve", cls=Command, short_help="Serve a repository of bundles over HTTP.")
@click.option("--models", help="Repository of bundles: a folder, s3://…, gs://… or az://….")
@click.option("--host", help="Address to listen on; 127.0.0.1 by default.")
@click.option("--port", type=int, help="Port to listen on; 8000 by default.")
@click.option("--root-path", help="Path prefix that a proxy adds, such as /forecasts.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Device that runs models."
)
@click.option("--workers", type=int, help="Number of HTTP worker processes; 1 by default.")
@click.option("--threads", type=int, help="Inference threads; as many as CPUs by default.")
@click.option(
    "--load",
    type=click.Choice(["start", "on-demand"]),
    help="When to load models; at the start by default.",
)
@click.option("--operations-port", type=int, help="Separate port for probes and metrics.")
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), help="Log format; json by default."
)
def command(**flags: object) -> None:
    """Serve a repository of bundles over HTTP.

    Every option, and more settings, can be set by an environment variable: FORETELL_MODELS,
    FORETELL_MAX_BATCH, … An option overrides its variable.
    """
    # Set before the slow imports: during them, default handlers would end the process at a signal.
    from foretell.service.signals import end_at_once, stop_signals

    with stop_signals(end_at_once):
        from foretell.service.settings import Settings
        from foretell.service.start import serve

        serve(Settings.read(**{name: one for name, one in flags.items() if one is not None}))
