"""Models for the page: small, and named as those of the demo."""

from __future__ import annotations

from pathlib import Path

from tests.service.bundles import (
    Spec,
    channel_stage,
    cluster_stage,
    lag_stage,
    mapless_stage,
    softmax_stage,
    write_bundle,
)

CHANNELS = ("temperature", "wind_speed")
# Two days, so that auto-correlation finds a lag of one.
CONTEXT = 48

SPECS = (
    Spec(
        name="patchtst",
        channels=CHANNELS,
        context=CONTEXT,
        horizon=12,
        stages=(softmax_stage(CONTEXT, channels=len(CHANNELS)),),
        calibrated=4,
    ),
    Spec(
        name="autoformer",
        channels=CHANNELS,
        context=CONTEXT,
        horizon=12,
        with_calendar=True,
        stages=(lag_stage(CONTEXT, name="encoder.0.self"),),
        calibrated=4,
    ),
    # The other forms of evidence, without quantiles, and with another channel.
    Spec(
        name="forms",
        channels=(*CHANNELS, "pressure"),
        context=CONTEXT,
        horizon=12,
        stages=(channel_stage(3), cluster_stage(CONTEXT), mapless_stage(CONTEXT)),
    ),
)


def write_models(repository: Path) -> Path:
    """Write all of them; returns the repository."""
    for spec in SPECS:
        write_bundle(repository, spec)
    return repository
