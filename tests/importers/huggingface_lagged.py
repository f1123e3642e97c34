"""What tests of the models of transformers share whose tokens are values at lags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import Tensor

from foretell.commands.import_ import command
from foretell.importers.convert import Request
from foretell.importers.folders import import_folder
from tests.importers.damage import break_file
from tests.importers.test_huggingface import listed, save, walks

STATIC: dict[str, Any] = {
    "cardinality": [4],
    "embedding_dimension": [3],
    "num_static_categorical_features": 1,
}
DATED = {"time_features": "hour_of_day, day_of_week"}


def train(kind: type[Any], config: Any) -> Any:
    """A model after a few steps of the library's own loss."""
    torch.manual_seed(0)
    model = kind(config)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    context = config.context_length + max(config.lags_sequence)
    for _ in range(3):
        rows = walks(8, context + config.prediction_length, config.input_size)
        rows = rows.abs().round() if config.distribution_output == "negative_binomial" else rows
        rows = rows[..., 0] if config.input_size == 1 else rows
        given = asked(model, rows[:, :context], None, future=rows[:, context:])
        optimizer.zero_grad()
        model(**given).loss.backward()
        optimizer.step()
    return model.eval()


def asked(
    model: Any, history: Tensor, start: str | None, *, future: Tensor, category: int = 2
) -> dict[str, Any]:
    """What the library reads of windows, from this time on or at any; NaN is missing."""
    config, count = model.config, len(history)
    steps = history.shape[1] + config.prediction_length
    features = torch.rand(count, steps, config.num_time_features) - 0.5
    if start is not None:
        hours = np.datetime64(start, "h").astype(int) + np.arange(steps)
        # 1970-01-01 was a Thursday.
        dated = np.stack([hours % 24 / 23, (hours // 24 + 3) % 7 / 6], axis=-1) - 0.5
        features = torch.tensor(dated[:, : config.num_time_features], dtype=torch.float32)
        features = features.expand(count, -1, -1)
    given = {
        "past_values": history.nan_to_num(),
        "past_observed_mask": ~history.isnan(),
        "past_time_features": features[:, : history.shape[1]],
        "future_time_features": features[:, history.shape[1] :],
        "future_values": future,
    }
    if config.num_static_categorical_features:
        given["static_categorical_features"] = torch.full((count, 1), category)
    if config.num_static_real_features:
        given["static_real_features"] = torch.tensor([[0.5, -2]]).expand(count, -1)
    return given


def told(history: Tensor, missing: str) -> dict[str, Any]:
    """Inputs and options of a request for forecasts of windows, from 2026 on."""
    inputs = [
        {"series": listed(rows), "start_timestamp": "2026-01-01T00:00:00"}
        for rows in history.reshape(*history.shape[:2], -1)
    ]
    return {"inputs": inputs, "options": {"missing": missing}}


def windows(context: int, channels: int) -> Tensor:
    """Sixteen as the library takes them: zeros, a constant, one that stands, and others of which
    one is large and one below 0.
    """
    torch.manual_seed(1)
    found = walks(16, context, channels)
    found[0], found[1] = 0, 3
    found[2, 1:, 0] = found[2, 0, 0]
    found[3] *= 1e4
    found[4] *= -1
    return found[..., 0] if channels == 1 else found


def names(channels: int) -> tuple[str, ...]:
    return ("load", "wind", "sun")[:channels]


def adopt(folder: Path, given: Mapping[str, str], channels: int) -> Any:
    request = Request(
        file=folder,
        source="huggingface",
        channels=names(channels),
        frequency="h",
        unscaled=True,
        arguments=given,
    )
    return import_folder(request)


def run(folder: Path, out: Path, channels: int, *options: str) -> Result:
    given = ["--from", "huggingface", "--frequency", "h", "--unscaled"]
    named = ["--channels", ",".join(names(channels))]
    return CliRunner().invoke(command, [str(folder), *given, *named, "--out", str(out), *options])


def break_weights(path: Path, kind: str, state: dict[str, Tensor]) -> None:
    value, table = "model.encoder.value_embedding.value_projection.weight", "model.embedder"
    match kind:
        case "tensor missing":
            save_file({key: one for key, one in state.items() if key != value}, path)
        case "other shape":
            save_file(state | {value: torch.ones(16, 5)}, path)
        case "not finite":
            save_file(state | {value: torch.full((16, 9), torch.nan)}, path)
        case "no table":
            save_file({key: one for key, one in state.items() if table not in key}, path)
        case _:
            break_file(path, kind)


def check_is_refused(model: Any, scratch: Path, kind: str, message: str) -> None:
    """See that nothing is written of a damaged folder, and that the message says why."""
    folder = save(model, scratch / "saved")
    break_weights(folder / "model.safetensors", kind, model.state_dict())
    options = ["--static_categorical=2", "--to", str(scratch / "models"), "--name", "x"]
    done = run(folder, scratch / "out", 1, *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert {path.name for path in scratch.iterdir()} == {"saved"}
    assert not (folder / "victim").exists()
