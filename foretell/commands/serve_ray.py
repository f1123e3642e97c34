"""`foretell serve-ray`: answer forecasts from a repository of bundles, on a Ray cluster."""

from __future__ import annotations

import click


@click.command(name="serve-ray")
@click.option("--models", help="The repository of bundles: a folder, s3://…, gs://… or az://….")
@click.option("--address", help="The cluster: auto, or ray://HOST:PORT; none begins one here.")
@click.option("--doors", type=int, help="Replicas that read requests; 1 unless given.")
@click.option(
    "--engines", metavar="MIN:MAX", help="Replicas that run models, by how much waits; 1:1."
)
@click.option("--gpus-per-engine", type=float, help="GPUs of each, or a share of one; 0.")
@click.option("--models-per-engine", type=int, help="Most models that each holds; 8.")
@click.option("--host", help="Address to listen on; 127.0.0.1 unless given.")
@click.option("--port", type=int, help="Port to listen on, on every node; 8000 unless given.")
def command(address: str | None, **flags: object) -> None:
    """Serve a repository of bundles over HTTP from doors and engines on a Ray cluster.

    What `foretell serve` reads of FORETELL_ variables holds here, too. Every node needs the
    folder under the same path, or a way to the storage. The server ends with this command.
    """
    from foretell.service.errors import StartError
    from foretell.service.ray.app import Plan
    from foretell.service.ray.run import serve
    from foretell.service.settings import Settings

    given = {name: value for name, value in flags.items() if value is not None}
    own = {name: given.pop(name) for name in Plan.model_fields if name in given}
    try:
        serve(Settings.read(**given), Plan.read(**own), address)
    except StartError as error:
        click.echo(f"foretell serve-ray: {error}", err=True)
        raise SystemExit(2) from None
