"""Small models with random weights, and their checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from foretell.data import scaler
from foretell.data.panel import Panel
from foretell.data.reading import read
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.models.config import ForecasterConfig
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import against_baselines
from foretell.training.windows import Windows

HOURLY = Calendar.for_frequency(Frequency.parse("h"), "scaled")
SMALL = {
    "channels": 3,
    "context": 48,
    "horizon": 12,
    "d_model": 16,
    "heads": 2,
    "d_ff": 24,
    "encoder_layers": 1,
}
CONFIGS: dict[str, ForecasterConfig] = {
    "autoformer": AutoformerConfig(**SMALL, label=24, calendar=HOURLY, moving_average=13),
    "patchtst": PatchTSTConfig(**SMALL),
    "transformer": TransformerConfig(**SMALL, label=24, calendar=HOURLY),
}


def randomised(config: ForecasterConfig, seed: int = 0) -> Forecaster:
    """A model whose every parameter and running statistic shows in its forecast."""
    torch.manual_seed(seed)
    model = config.build()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
        if isinstance(module, nn.Conv1d):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.Linear) and not module.weight.any():
            module.reset_parameters()
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def checkpoint_of(config: ForecasterConfig, data: Path | Panel | None, folder: Path) -> Path:
    """Save a randomised model as if it had been trained on the data."""
    model = randomised(config)
    fitted = {"mean": (0.0,) * config.channels, "std": (1.0,) * config.channels}
    names = tuple(f"channel {i}" for i in range(config.channels))
    source = test = None
    if data is not None:
        panel = read(data) if isinstance(data, Path) else data
        splits = Splits.by_fraction()
        split = splits.cut(panel, config.context, config.horizon)
        fitted = scaler.fit(panel, split.train)
        names = panel.channels
        windows = Windows.of(config, panel, split.test, fitted)
        test = against_baselines(model, windows, panel.frequency, windows_that_fit(model))
        source = DataSource.of(panel, splits)
    info = CheckpointInfo.model_validate(
        {
            "config": config,
            "channels": names,
            "frequency": "h",
            "scaler": fitted,
            "data": source,
            "test": test,
        }
    )
    save(folder, model, info)
    return folder
