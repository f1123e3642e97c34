"""Compares mechanisms of attention: errors of forecasts, cost, and faithfulness of maps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from bench.cases.graphs import peak_memory
from bench.harness import Result, Run, Tables, interleaved_medians, kept, spread
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.data.reading import read
from foretell.demo.data import write_csv
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.models.attending import AttendingConfig
from foretell.models.attention.evidence import Dense, Single, Sparse
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site
from foretell.models.attention.notation import read_notation
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.service.engine.runtime import Runtime
from foretell.training.config import TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.train import train
from foretell.training.windows import Windows

RESULTS = Path(__file__).with_name("attention.jsonl")
# The reference; it is also used at sites that refuse another mechanism.
_REFERENCE = "softmax"
_MIXED = ("local:1,stride:1,global:2", "local+global")
_CONTEXTS = {"transformer": 96, "patchtst": 336}
_HORIZON, _CHANNELS, _SEEDS, _EPOCHS, _DEMO = 96, 7, 3, 5, "demo"
_SIZES = {"d_model": 32, "heads": 4, "d_ff": 64, "encoder_layers": 2, "dropout": 0.0}
# Fixed here: earlier results stay comparable when defaults change.
_RECIPE: dict[str, Any] = {"loss": "mse", "learning_rate": 2e-3, "calendar": "all"}
_LENGTHS = (96, 336, 720, 1440, 4096)
# One layer: at these lengths most of the cost is attention.
_LONG = {"d_model": 64, "heads": 4, "d_ff": 128, "encoder_layers": 1, "label": 48}
_CHUNKS: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 24}
_WAYS: dict[str, dict[str, Any]] = {
    "one pass": {},
    "one pass, memory of the same height": {"memory": "same", "decoder_layers": 2},
    "one pass, guided": {"guidance": 1.0},
    "chunks of 24, teacher forcing": _CHUNKS,
    "chunks of 24, scheduled sampling": {**_CHUNKS, "feeding": "scheduled"},
    "chunks of 24, free running": {**_CHUNKS, "feeding": "free"},
}
_WINDOWS, _SHARE, _DRAWS = 64, 0.1, 5


def names() -> list[str]:
    """All compared mechanisms, in the notation of `--attention`; the reference first."""
    single = [name for name, config in MECHANISMS.items() if not config.made_of_others]
    return [_REFERENCE, *(name for name in single if name != _REFERENCE), *_MIXED]


def settings(architecture: str, name: str, **sizes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Fields of a config with a mechanism at every site that allows it, and else the reference.

    Raises:
        ValueError: it may be nowhere.
    """
    [wanted] = (MECHANISMS.read(fields) for fields in read_notation(name))
    usual = MECHANISMS.read(_REFERENCE)
    config = ARCHITECTURES.read({"architecture": architecture, **sizes})
    assert isinstance(config, AttendingConfig)
    chosen = [wanted if _may_be(wanted, site) else usual for _, site in config.sites().values()]
    if wanted not in chosen:
        raise ValueError(f"attention: {name} may be nowhere in a {architecture}")
    attention = [one.model_dump(mode="json") for one in chosen]
    given = {**sizes, "window_norm": config.window_norm}
    return {"architecture": architecture, **given, "attention": attention}


def _may_be(mechanism: MechanismConfig, site: Site) -> bool:
    try:
        mechanism.check(site)
    except ValueError:
        return False
    return True


def measure(run: Run) -> Result:
    """Train each in a Transformer and a PatchTST, and time and weigh its graphs.

    Trained models are kept by data, architecture, mechanism, seed and epochs. `--only` takes
    mechanisms, or `decoding`.
    """
    torch.set_num_threads(1)
    results = run.folder / RESULTS.name if run.quick else RESULTS
    demo = run.folder / "demo.csv"
    write_csv(demo)
    data = run.data[0] if run.data else demo
    panels, epochs = {data.stem: read(data), _DEMO: read(demo)}, run.pick(_EPOCHS, 1)
    seeds = range(run.pick(_SEEDS, 1))
    tables: Tables = {"errors": [], "lengths": [], "decoding": [], "horizons": []}
    wanted = [name for name in run.pick(names(), names()[:1]) if run.wants(name)]
    for name, architecture in itertools.product(wanted, _CONTEXTS):
        try:
            sizes = {"context": _CONTEXTS[architecture], "horizon": _HORIZON, **_SIZES}
            fields = settings(architecture, name, channels=_CHANNELS, **sizes)
        except ValueError:
            continue
        runs: dict[str, list[dict[str, Any]]] = {data.stem: [], _DEMO: []}
        for where, seed in [*((data.stem, seed) for seed in seeds), (_DEMO, 0)]:
            key = f"train {where} {architecture} {name} {seed} {epochs}"
            train_it = partial(_trained, where, panels[where], fields, seed, epochs, run.folder)
            runs[where].append(kept(results, key, train_it))
        cost = kept(results, f"cost {architecture} {name}", partial(_cost, run, fields, sizes))
        row: dict[str, Any] = {"mechanism": f"`{name}`", "architecture": architecture}
        row |= _errors(runs[data.stem]) | {"MSE, demo's data": runs[_DEMO][0]["mse"]}
        if faithful := [each["faithful"] for each in runs[data.stem] if "faithful" in each]:
            row["faithful"] = mean(faithful)
        tables["errors"] = [*tables["errors"], row | {"ms": cost["ms"], "MiB": round(cost["mib"])}]
    for name in wanted:
        row = {"mechanism": f"`{name}`"}
        for length in run.pick(_LENGTHS, _LENGTHS[:1]):
            sizes = {"context": length, "horizon": _HORIZON, **_LONG}
            fields = settings("transformer", name, channels=_CHANNELS, **sizes)
            found = kept(results, f"length {name} {length}", partial(_cost, run, fields, sizes))
            row[str(length)] = f"{found['ms']:.1f} ({found['times']:.2f})"
        row["MiB"] = f"{found['mib']:.0f} ({found['of_memory']:.2f})"
        tables["lengths"] = [*tables["lengths"], row]
    for way, own in _WAYS.items() if run.wants("decoding") and not run.quick else ():
        config = {"context": 96, "horizon": _HORIZON, **_SIZES, **own, "window_norm": None}
        fields = {"architecture": "transformer", **config}
        ways = [
            kept(
                results,
                f"decoding {data.stem} {way} {seed} {epochs}",
                partial(_trained, data.stem, panels[data.stem], fields, seed, epochs, run.folder),
            )
            for seed in seeds
        ]
        tables["decoding"] = [*tables["decoding"], {"way": way, **_errors(ways)}]
    return Result({name: rows for name, rows in tables.items() if rows})


def _errors(runs: list[dict[str, Any]]) -> dict[str, str]:
    return {"MSE": spread(run["mse"] for run in runs), "MAE": spread(run["mae"] for run in runs)}


def _trained(
    where: str, panel: Panel, fields: Mapping[str, Any], seed: int, epochs: int, folder: Path
) -> dict[str, Any]:
    """Train a model; its errors on the test split, and how faithful its maps are."""
    own = fields.keys() - {"architecture", "channels", "context", "horizon"}
    config = TrainingConfig(
        arch=fields["architecture"],
        context=fields["context"],
        horizon=fields["horizon"],
        model={field: fields[field] for field in own},
        epochs=epochs,
        **_RECIPE,
        splits="ett-hourly" if where.startswith("ETTh") else (0.7, 0.1, 0.2),
        seed=seed,
    )
    checkpoint = train(config, panel, folder / "checkpoint", overwrite=True)
    test = checkpoint.info.test
    assert test is not None
    found = {"mse": test.model.mse, "mae": test.model.mae}
    faithful = faithfulness(checkpoint.model, prepare(config, panel).test)
    return found if faithful is None else {**found, "faithful": faithful}


def _cost(run: Run, fields: dict[str, Any], sizes: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of one window, in turns with the reference, and peak MiB; and their ratios."""
    usual = settings(fields["architecture"], _REFERENCE, channels=_CHANNELS, **sizes)
    graphs = {"own": run.folder / "own.onnx", "usual": run.folder / "usual.onnx"}
    calls, scaler = {}, Scaler.identity(_CHANNELS)
    shape = (1, fields["context"], _CHANNELS)
    window = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for (name, path), each in zip(graphs.items(), (fields, usual), strict=True):
        torch.manual_seed(0)
        form = inference_form(ARCHITECTURES.read(each).build().eval())
        onnx.save(trace(ServingForm(form, scaler, "forecast")), path)
        calls[name] = partial(Runtime("cpu").open(path).run, {"history": window})
    seconds = interleaved_medians(calls, run.duration(2, 0.1))
    mib = {name: peak_memory(path, 1) for name, path in graphs.items()}
    return {
        "ms": 1e3 * seconds["own"],
        "times": seconds["own"] / seconds["usual"],
        "mib": mib["own"],
        "of_memory": mib["own"] / mib["usual"],
    }


def faithfulness(model: Forecaster, windows: Windows) -> float | None:
    """How much more a forecast changes without the steps with most attention in the first stage.

    A tenth of the steps of the history are replaced by the mean of their window (erasure, as in
    arXiv:1911.03429): those with the largest weights, and as many drawn by lot.

    Returns:
        The mean square of the change by the former, in units of that by the latter: 1 is no better
        than chance. None where the first stage shows no map of steps.
    """
    picked = np.linspace(0, len(windows) - 1, _WINDOWS).astype(int)
    batch = windows.batch(torch.from_numpy(picked))
    inputs = batch.inputs
    with torch.inference_mode():
        forecast, attention, *_ = model.explain(*inputs)
        stage = model.stages[0]
        if stage.name not in attention or not stage.key.in_time:
            return None
        weights = _by_step(model, attention[stage.name], batch.history.shape[1])
        if weights is None:
            return None
        count = round(_SHARE * batch.history.shape[1])
        generator = torch.Generator().manual_seed(0)

        def change(scores: Tensor) -> float:
            gone = torch.zeros_like(scores).scatter(1, scores.topk(count, dim=1).indices, 1.0)
            middle = batch.history.mean(dim=1, keepdim=True)
            erased = torch.where(gone[..., None] > 0, middle, batch.history)
            return float((model(erased, *inputs[1:]) - forecast).square().mean())

        by_lot = [change(torch.rand(weights.shape, generator=generator)) for _ in range(_DRAWS)]
        return change(weights) / (sum(by_lot) / _DRAWS)


def _by_step(model: Forecaster, evidence: Single, steps: int) -> Tensor | None:
    """The share of the attention that each step of the history gets, `[batch, steps]`."""
    key = model.stages[0].key
    if isinstance(evidence, Sparse):
        shape = (*evidence.keys.shape[:-1], key.length + 1)
        # Places without a key are put behind the last key.
        at = torch.where(evidence.keys < 0, key.length, evidence.keys)
        dense = evidence.weights.new_zeros(shape).scatter_add(-1, at, evidence.weights)[..., :-1]
    elif isinstance(evidence, Dense):
        dense = evidence.weights
    else:
        return None
    by_position = dense.flatten(1, -2).mean(dim=1)
    starts = steps + key.start + key.stride * torch.arange(key.length)
    covered = (starts[:, None] + torch.arange(key.width)).clamp(max=steps - 1)
    return by_position.new_zeros(len(by_position), steps).scatter_add(
        1,
        covered.flatten().expand(len(by_position), -1),
        by_position.repeat_interleave(key.width, dim=1) / key.width,
    )
