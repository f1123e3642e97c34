"""`foretell batch`: forecast every series of a table, without a server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from foretell.commands.command import Command
from foretell.commands.options import (
    NEW_FOLDER,
    accept,
    horizon_option,
    levels_option,
    signed_by_option,
)
from foretell.timeaxis.gaps import Missing

if TYPE_CHECKING:
    from foretell.batch.run import Summary


@click.command(
    "batch",
    cls=Command,
    resumed="continues with what is left",
    short_help="Forecast all series of a large table.",
)
@click.argument("source", metavar="INPUT")
@click.argument("target", metavar="OUTPUT")
@click.option(
    "--model",
    required=True,
    help="Folder of a bundle, or of a model for its newest version (MODEL@VERSION for another); or "
    "the URL of either in object storage, or oci://registry/path/name[:VERSION].",
)
@click.option(
    "--cache",
    type=NEW_FOLDER,
    envvar="FORETELL_CACHE",
    help="Folder for models fetched from a URL; ~/.cache/foretell by default.",
)
@signed_by_option
@horizon_option
@levels_option
@click.option(
    "--missing",
    type=click.Choice(get_args(Missing)),
    default="error",
    show_default=True,
    help="How to treat missing values: reject the series, fill them in, or (models that read gaps) "
    "mask them.",
)
@click.option("--id-column", default="unique_id", show_default=True, help="Column of series names.")
@click.option("--time-column", default="ds", show_default=True, help="Column of timestamps.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device that runs the model.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Number of processes; by default one per GPU, or per core without GPUs.",
)
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="local",
    envvar="RAY_ADDRESS",
    help="Run on the Ray cluster at ADDRESS, or on a local one (extra ray).",
)
@click.option(
    "--part-rows",
    type=click.IntRange(min=1),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Approximate rows of INPUT for each file of OUTPUT; the last files have fewer.",
)
def command(
    source: str,
    target: str,
    model: str,
    cache: Path | None,
    signed_by: tuple[Path, ...],
    quantiles: tuple[float, ...],
    time_column: str,
    workers: int | None,
    ray: str | None,
    part_rows: int,
    **options: Any,  # noqa: ANN401
) -> None:
    """Forecast all series of the table INPUT into OUTPUT/forecasts, on all cores.

    INPUT is a Parquet or CSV file, or a folder of them. Its rows are sorted by series and time. Its
    columns are unique_id, ds and the model's channels (y if the model has one). Series that cannot
    be forecast go to OUTPUT/rejected, with the reason. To resume an interrupted run, repeat the
    command.
    """
    from foretell.batch import workers as processes

    # SIGTERM is handled as an interrupt, which cleans up unfinished parts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if ray is None:
        # Workers import in parallel with this process.
        processes.begin()

    from foretell.batch.prepare import Task
    from foretell.batch.run import forecast_table
    from foretell.storage.sources import find_bundle, pinned

    bundle = find_bundle(model, cache)
    folder = accept(bundle, signed_by)
    task = Task(
        source=source,
        target=target,
        bundle=folder,
        quantiles=quantiles,
        time_column=time_column,
        **options,
    )
    execute = partial(processes.run_parts, workers=workers)
    if ray is not None:
        from foretell.batch import on_ray

        # Nodes do not have the folder of this process.
        url = pinned(model, bundle)
        find = partial(find_bundle, url, cache and cache.absolute()) if url else lambda: bundle
        execute = partial(on_ray.run_parts, workers=workers, address=ray, find=find)
    with _bar() as progress:
        most = processes.workers_of(task.device, workers)
        summary = forecast_table(task, execute, progress, part_rows, most)
    click.echo(_last_line(summary, target))


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Progress bar of rows with the time left, on stderr if it is a terminal."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    with progress.Progress(
        "rows",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        bar = bars.add_task("rows", total=None)
        yield lambda done, rows: bars.update(bar, completed=done, total=rows)


def _last_line(summary: Summary, target: str) -> str:
    counts, new = summary.counts, sum(summary.counts) - summary.before
    line = f"{counts.forecast:,} series forecast in {target}"
    if counts.rejected:
        line += f", {counts.rejected:,} in {target}/rejected"
    if summary.before:
        line += f"; {summary.before:,} of them before"
    return line + (
        f"; {new:,} in {summary.seconds:,.1f} s, {new / summary.seconds:,.0f} series/s"
        if new
        else ""
    )
