"""Parts on a Ray cluster, with one actor per CPU or GPU."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError

from foretell.batch.errors import BatchError
from foretell.batch.output import Counts
from foretell.batch.plan import Part
from foretell.batch.work import Done, Work, Worker

# Retries of a part whose node is lost or whose process ends.
_RETRIES = 3


def run_parts(
    work: Work,
    parts: Sequence[Part],
    workers: int | None,
    address: str,
    find: Callable[[], Path],
) -> Iterator[Done]:
    """Forecast parts in any order; other nodes repeat the parts of a lost node.

    Args:
        work: Table, model and target; all nodes reach table and target under the same paths.
        parts: Parts to forecast.
        workers: Largest number of actors; by default the number of GPUs, or of CPUs without GPUs.
        address: Address of the cluster; `local` starts one on this machine for this run.
        find: Function that finds the bundle on a node.

    Raises:
        BatchError: there is no such cluster, a part cannot be forecast, or its worker's process
            ends after every retry.
    """
    # Ray sends no usage statistics unless the operator enables them.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    was_there = ray.is_initialized()
    try:
        if not was_there:
            ray.init(
                address=address,
                include_dashboard=False if address == "local" else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        yield from _run(work, parts, workers, find)
    except (ConnectionError, ValueError, RayError) as error:
        cause = getattr(error, "cause", None)
        # The lines after the first are advice on Ray's settings.
        reason = str(cause or error).partition("\n")[0]
        raise BatchError(f"Ray: {reason}") from error
    finally:
        if not was_there:
            ray.shutdown()


def _run(
    work: Work, parts: Sequence[Part], workers: int | None, find: Callable[[], Path]
) -> Iterator[Done]:
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = 0 if work.device == "cpu" else int(resources.get("GPU", 0))
    most = min(workers or gpus or int(resources.get("CPU", 0)), len(parts))
    if not most:
        raise BatchError("the cluster has no CPU")
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True
    # An actor has one part at a time, and stays until all parts are done.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    # One block for each part, so that Ray retries single parts.
    rows = ray.data.from_items(
        [{"part": place} for place in range(len(parts))], override_num_blocks=len(parts)
    )
    done = rows.map_batches(
        _Actor,
        fn_constructor_args=(work, list(parts), find),
        batch_size=1,
        # After the loss of a node there is room for fewer actors.
        compute=ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=most, max_tasks_in_flight_per_actor=1
        ),
        num_gpus=1 if gpus else None,
        num_cpus=None if gpus else 1,
        max_task_retries=_RETRIES,
    )
    for row in done.iter_rows():
        yield Done(int(row["part"]), Counts(int(row["forecast"]), int(row["rejected"])))


class _Actor:
    """A worker on a node."""

    def __init__(self, work: Work, parts: list[Part], find: Callable[[], Path]) -> None:
        self._find = find
        self._work = work
        self._parts = parts
        self._worker: Worker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[int]]:
        if self._worker is None:
            # Created on use: the command receives errors of calls, not of the constructor.
            self._worker = Worker(replace(self._work, bundle=self._find()))
        done = self._worker.run(self._parts[int(batch["part"][0])])
        return {
            "part": [done.part],
            "forecast": [done.counts.forecast],
            "rejected": [done.counts.rejected],
        }
