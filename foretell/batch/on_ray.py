"""Parts on a cluster of Ray: one actor a CPU or GPU, over all of its nodes."""

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
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from foretell.batch.errors import BatchError
from foretell.batch.output import Counts
from foretell.batch.parts import Done, Work, Worker
from foretell.batch.places import open_place
from foretell.batch.plan import Part

# Times that a part may end the process of its worker.
_TRIES = 3


def run_parts(
    work: Work,
    parts: Sequence[Part],
    workers: int | None,
    address: str,
    find: Callable[[], Path] | None = None,
) -> Iterator[Done]:
    """Forecast parts, in any order. Those of a node that is lost are done again by others.

    Args:
        work: What to do; its places are the same from all nodes.
        parts: The parts.
        workers: Actors at most; if None as many as the cluster has GPUs, or else CPUs.
        address: Of the cluster; `local` is one of this machine for this run.
        find: Finds the bundle on a node; None where it lies at the same place on all.

    Raises:
        BatchError: there is no such cluster, a part cannot be forecast, or it ends the process of
            its worker again and again.
    """
    # Nothing is told to Ray's makers, unless the operator wants that.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    was_there = ray.is_initialized()
    try:
        if not was_there:
            is_local = address == "local"
            ray.init(
                address=address,
                include_dashboard=False if is_local else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        yield from _run(work, parts, workers, find)
    except (ConnectionError, ValueError, RayError) as error:
        cause = getattr(error, "cause", None)
        # What follows on our own words is advice on Ray's settings.
        said = str(cause).partition("\n")[0] if cause else error
        raise BatchError(f"Ray: {said}") from error
    finally:
        if not was_there:
            ray.shutdown()


def _run(
    work: Work, parts: Sequence[Part], workers: int | None, find: Callable[[], Path] | None
) -> Iterator[Done]:
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = 0 if work.device == "cpu" else int(resources.get("GPU", 0))
    most = min(workers or gpus or int(resources.get("CPU", 0)), len(parts))
    if not most:
        raise BatchError("the cluster has no CPU")
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True
    # Actors have one part at a time, so that all are as busy as they can be at one.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    # None is given up while there are parts: one that has just begun has none yet.
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    # Of each part a block: what is done again is one.
    rows = ray.data.from_items(
        [{"part": place} for place in range(len(parts))], override_num_blocks=len(parts)
    )
    tries = _tries()
    done = rows.map_batches(
        _Actor,
        fn_constructor_args=(work, list(parts), tries, find),
        batch_size=1,
        # With a node lost there is room for fewer.
        compute=ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=most, max_tasks_in_flight_per_actor=1
        ),
        num_gpus=1 if gpus else None,
        num_cpus=None if gpus else 1,
    )
    for row in done.iter_rows():
        yield Done(int(row["part"]), Counts(int(row["forecast"]), int(row["rejected"])))


def _tries() -> Any:  # noqa: ANN401
    """What counts tries, on the node of the command: without that there is no run."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    counts = ray.remote(_Tries).options(num_cpus=0, scheduling_strategy=here)
    return counts.remote()


class _Tries:
    """How often the process of a worker has ended with a part.

    Ray does again whatever was lost, without end: a part that is lost with its node is not at
    fault, however often, and one that ends its process is.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, list[str]] = {}

    def begin(self, part: int, node: str) -> int:
        """A node begins a part; how many processes have ended with it, on nodes that live on."""
        before = self._nodes.setdefault(part, [])
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        alive = {each["NodeID"] for each in nodes if each["Alive"]}
        ended = sum(each in alive for each in before)
        before.append(node)
        return ended


class _Actor:
    """A worker on a node."""

    def __init__(
        self,
        work: Work,
        parts: list[Part],
        tries: Any,  # noqa: ANN401
        find: Callable[[], Path] | None,
    ) -> None:
        self._find = find
        self._work = work
        self._parts = parts
        self._tries = tries
        self._worker: Worker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[int]]:
        part = self._parts[int(batch["part"][0])]
        node = ray.get_runtime_context().get_node_id()
        if ray.get(self._tries.begin.remote(part.number, node)) >= _TRIES:
            raise BatchError(_ended(self._work, part))
        if self._worker is None:
            # Here, and not when the actor begins: what it raises comes to the command.
            found = self._find() if self._find else self._work.bundle
            self._worker = Worker(replace(self._work, bundle=found))
        done = self._worker.run(part)
        return {
            "part": [done.part],
            "forecast": [done.counts.forecast],
            "rejected": [done.counts.rejected],
        }


def _ended(work: Work, part: Part) -> str:
    file, row = part.place(part.spans[0].first)
    return (
        f"part {part.number} (from row {row} of {open_place(work.source).of(file)}) has ended the "
        f"process of its worker {_TRIES} times, by a lack of memory maybe; what is written stays, "
        "and the same command goes on: with fewer --workers, or to another OUTPUT with fewer "
        "--part-rows"
    )
