"""Verifying a bundle by itself: without torch, from its probes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bundle import checksums, layout
from bundle.comparison import relative_error
from bundle.manifest import Check, Manifest, Verification, read
from export.runtime import Graph


def replay(folder: Path) -> tuple[Manifest, Verification]:
    """Check the sums and run the probes through both graphs.

    Raises:
        BundleError: a file is missing or was changed, or the manifest does not keep the contract.
    """
    manifest = read(folder)
    checksums.check(folder, manifest.files)
    with np.load(folder / layout.PROBES, allow_pickle=False) as probes:
        expected = probes["forecast"]
        inputs = [probes["history"]]
        if manifest.calendar is not None:
            inputs += [probes["history_calendar"], probes["future_calendar"]]
    checks = []
    for file in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH):
        forecast = Graph(folder / file).forecast(*inputs)
        errors = relative_error(forecast, expected, np.array(manifest.scaler.std))
        checks.append(
            Check(
                name=f"{file}, probes",
                windows=len(expected),
                max_error=float(errors.max()),
                median_error=float(np.median(errors)),
                tolerance=manifest.probe_tolerance,
            )
        )
    return manifest, Verification(
        reference="the bundle's probes", provider=Graph.provider, checks=tuple(checks)
    )
