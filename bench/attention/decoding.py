"""Ways of decoding compared: errors, time by horizon, and what guidance does to cross-attention."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.attention.speed import CHANNELS, median_seconds, write_graph
from bench.attention.subjects import CONTEXTS, HORIZON, RECIPE, SIZES
from bench.attention.training import WINDOWS, Budget
from bench.results import Record, Results
from foretell.data.panel import Panel
from foretell.models.attention.evidence import Dense
from foretell.training.config import TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.train import train

ARCHITECTURE = "transformer"
HORIZONS = (96, 192, 384, 768)
_CHUNKS: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 24}
WAYS: dict[str, dict[str, Any]] = {
    "one pass": {},
    "one pass, memory of the same height": {"memory": "same", "decoder_layers": 2},
    "one pass, guided": {"guidance": 1.0},
    "chunks of 24, teacher forcing": _CHUNKS,
    "chunks of 24, scheduled sampling": {**_CHUNKS, "feeding": "scheduled"},
    "chunks of 24, free running": {**_CHUNKS, "feeding": "free"},
}
PLAIN, GUIDED = "one pass", "one pass, guided"


def trained(panel: Panel, way: str, seed: int, budget: Budget, maps: Path | None) -> Record:
    """Train a Transformer that decodes in a way; its mean cross-attention is written to `maps`."""
    config = TrainingConfig(
        arch=ARCHITECTURE,
        context=CONTEXTS[ARCHITECTURE],
        horizon=HORIZON,
        model={**SIZES, **WAYS[way], "window_norm": None},
        epochs=budget.epochs,
        **RECIPE,
        splits=budget.splits,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = train(config, panel, Path(folder) / "checkpoint")
    if maps is not None:
        windows = prepare(config, panel).test
        picked = np.linspace(0, len(windows) - 1, WINDOWS).astype(int)
        batch = windows.batch(torch.from_numpy(picked))
        with torch.inference_mode():
            seen = checkpoint.model.explain(*batch[:3]).attention["decoder.0.cross"]
        if isinstance(seen, Dense):
            maps.parent.mkdir(parents=True, exist_ok=True)
            np.save(maps, seen.weights.mean(dim=(0, 1)).numpy())
    test = checkpoint.info.test
    return {} if test is None else {"mse": test.model.mse, "mae": test.model.mae}


def by_horizon(horizon: int) -> Record:
    """Milliseconds of a window, both ways of decoding taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = {}
        for name, own in (("one_pass", {}), ("chunks", _CHUNKS)):
            graphs[name] = Path(folder) / f"{name}.onnx"
            sizes = {"channels": CHANNELS, "context": 96, "horizon": horizon, **SIZES, **own}
            write_graph({"architecture": ARCHITECTURE, **sizes}, graphs[name])
        found = median_seconds({name: (path, 96) for name, path in graphs.items()})
    return {name: 1e3 * seconds for name, seconds in found.items()}


def measure(
    results: Results,
    data: str,
    panel: Panel,
    seeds: Sequence[int],
    budget: Budget,
    folder: Path,
) -> None:
    """All that is not there yet; maps are those of the first seed."""
    for seed in seeds:
        for way in WAYS:
            maps = _map_file(folder, data, way) if seed == seeds[0] else None
            key = f"decoding {data} {way} {seed} {budget.epochs}"
            results.measure(key, partial(trained, panel, way, seed, budget, maps))
    for horizon in HORIZONS:
        results.measure(f"horizon {horizon}", partial(by_horizon, horizon))


def maps_of(data: str, folder: Path) -> dict[str, NDArray[np.float32]]:
    """Mean cross-attention `[query, key]` without guidance and with it; none if not kept here."""
    files = {way: _map_file(folder, data, way) for way in (PLAIN, GUIDED)}
    if not all(file.exists() for file in files.values()):
        return {}
    return {way: np.load(file) for way, file in files.items()}


def _map_file(folder: Path, data: str, way: str) -> Path:
    return folder / f"{data}-{way.replace(',', '').replace(' ', '-')}.npy"
