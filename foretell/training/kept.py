"""A trained network that is kept as it is, while a decoder of covariates learns beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretell.data.panel import Panel
from foretell.models.checkpoint import CheckpointInfo, load, load_info
from foretell.models.forecaster import Forecaster
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError

_OF_DECODER = ("covariate_width", "covariate_neighbours")


def kept_info(
    folder: Path,
    settings: TrainingConfig,
    panel: Panel,
    targets: Sequence[str],
) -> CheckpointInfo:
    """Description of the network, with a decoder of covariates in its configuration.

    Args:
        folder: Checkpoint of the network.
        settings: Settings of the training, which must agree with the network.
        panel: The data.
        targets: Channels to forecast.

    Raises:
        TrainingError: there are no covariates, or settings or channels are not those of the
            network; the message names them.
        CheckpointError: the checkpoint cannot be read.
    """
    info = load_info(folder)
    config, covariates = info.config, panel.covariates
    if covariates is None:
        raise TrainingError("network: a decoder beside it needs covariates; name some")
    if config.covariates is not None:
        raise TrainingError(f"network: {folder} reads covariates already")
    if not config.takes_decoder:
        raise TrainingError(f"network: no decoder can stand beside {config.architecture}")
    if panel.channels != info.channels:
        raise TrainingError(
            f"network: it reads the channels {', '.join(info.channels)}; the data has "
            f"{', '.join(panel.channels)}"
        )
    for name, given, own in (
        ("arch", settings.arch, config.architecture),
        ("context", settings.context, config.context),
        ("horizon", settings.horizon, config.horizon),
        ("frequency", str(panel.frequency), info.frequency),
        ("target", ", ".join(targets), ", ".join(info.targets)),
    ):
        if given != own:
            raise TrainingError(f"{name}: {given} is not that of the network, {own}")
    if unknown := settings.model.keys() - {*_OF_DECODER}:
        raise TrainingError(f"{min(unknown)}: the network has its own; leave it out")
    changes = settings.model | {"covariates": covariates, "covariate_decoder": True}
    fields = config.model_dump() | changes
    return info.model_copy(update={"config": type(config).model_validate(fields)})


def keep(model: Forecaster, folder: Path) -> None:
    """Give a model the weights of a trained network; only its decoder of covariates learns."""
    network = load(folder).model
    model.load_state_dict(network.state_dict(), strict=False)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("covariate_decoder."))
