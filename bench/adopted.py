"""Adopted models of NeuralForecast next to its own `predict`: `python -m bench.adopted`.

Writes its part of docs/import/neuralforecast.md; `--print` only prints it.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd

from bench.bulk import serving
from bench.page import machine, table, write_part
from bench.timing import interleaved_medians
from foretell.bundle.layout import FORECAST_GRAPH
from foretell.client import Client
from foretell.export.write import export_checkpoint
from foretell.importers.convert import import_checkpoint
from foretell.importers.saved import Request
from foretell.models.checkpoint import save
from foretell.service.engine.runtime import Runtime

PAGE = Path(__file__).parent.parent / "docs" / "import" / "neuralforecast.md"
SERIES, CONTEXT, HORIZON = 7, 96, 24
_MODELS = ("PatchTST", "DLinear")
_SECONDS = 30
_TOLERANCE = 1e-5
_TEXT = """\
## How fast

`make bench-adopted` wrote this part: {series} series of {context} rows are forecast {horizon} steps
ahead by models of the library's own sizes, with the frame that `nf.predict` takes. The client sends
it to `foretell serve` on the same machine and makes a frame of the answer; the next column has the
request alone, as JSON, sent and read by httpx; the last one what onnxruntime takes for the series
without a server: no way of asking is faster. Medians of calls in turns, in milliseconds, and their
share of `nf.predict`.

{machine}

{rows}"""


def frame() -> pd.DataFrame:
    """Walks, in the library's form."""
    values = np.random.default_rng(0).normal(size=(SERIES, CONTEXT)).cumsum(axis=1) + 20
    times = pd.date_range("2024-01-01", periods=CONTEXT, freq="h")
    parts = [
        pd.DataFrame({"unique_id": f"series-{i}", "ds": times, "y": row})
        for i, row in enumerate(values.astype(np.float32))
    ]
    return pd.concat(parts, ignore_index=True)


def train(rows: pd.DataFrame, folder: Path) -> Any:  # noqa: ANN401 - of a library without types
    """Train the models for a step, and save them; returns what predicts."""
    import neuralforecast
    from neuralforecast import models

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    sizes = {"h": HORIZON, "input_size": CONTEXT - HORIZON, "max_steps": 1, "accelerator": "cpu"}
    made = [getattr(models, name)(**sizes, **quiet, enable_model_summary=False) for name in _MODELS]
    trained = neuralforecast.NeuralForecast(models=made, freq="h")
    trained.fit(rows)
    trained.save(str(folder))
    return trained


def adopt(folder: Path, repository: Path, name: str, scratch: Path) -> Path:
    """Make a bundle of a saved model."""
    request = Request(file=folder, source="neuralforecast", member=f"{name}_0")
    imported = import_checkpoint(request)
    save(scratch / name, imported.model, imported.info)
    return export_checkpoint(scratch / name, repository, name=name)


def measure(
    trained: Any,  # noqa: ANN401 - see above
    rows: pd.DataFrame,
    bundles: list[Path],
    client: httpx.Client,
) -> list[tuple[str, ...]]:
    """A row for each model."""
    asking, found = Client(str(client.base_url)), []
    for name, bundle, member in zip(_MODELS, bundles, trained.models, strict=True):
        trained.models = [member]
        expected = trained.predict(rows)[name].to_numpy()
        answer = asking.forecast(rows, model=name)["y"].to_numpy()
        if np.abs(answer - expected).max() > _TOLERANCE * np.abs(expected).max():
            raise RuntimeError(f"{name}: the bundle forecasts otherwise than the library")
        inputs = [
            {"series": each["y"].tolist(), "start_timestamp": "2024-01-01T00:00:00"}
            for _, each in rows.groupby("unique_id")
        ]
        session = Runtime("cpu").open(bundle / FORECAST_GRAPH)
        context = session.inputs["history"][1]
        history = rows["y"].to_numpy(np.float32).reshape(SERIES, CONTEXT, 1)[:, -context:]
        seconds = interleaved_medians(
            {
                "predict": partial(trained.predict, rows),
                "client": partial(asking.forecast, rows, model=name),
                "request": partial(
                    client.post, "/forecast", json={"model": name, "inputs": inputs}
                ),
                "graph": partial(session.run, {"history": history}),
            },
            _SECONDS / len(_MODELS),
        )
        found.append(
            (
                name,
                f"{seconds['predict'] * 1e3:.0f}",
                *(
                    f"{seconds[way] * 1e3:.2g} (1/{seconds['predict'] / seconds[way]:.0f})"
                    for way in ("client", "request", "graph")
                ),
            )
        )
    return found


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.adopted", description=__doc__)
    options.add_argument("--print", action="store_true", help="do not write the page")
    only_print = options.parse_args().print
    # What lightning and its libraries say of each other.
    warnings.simplefilter("ignore")
    rows = frame()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = train(rows, folder / "saved")
        bundles = [
            adopt(folder / "saved", folder / "repository", model, folder) for model in _MODELS
        ]
        with serving(folder / "repository", folder) as client:
            measured = measure(trained, rows, bundles, client)
    text = _TEXT.format(
        series=SERIES,
        context=CONTEXT,
        horizon=HORIZON,
        machine=machine("neuralforecast", "torch", "onnxruntime"),
        rows=table(("model", "`nf.predict`", "client", "request", "graph"), measured),
    )
    print(text)
    if not only_print:
        write_part("adopted", text, PAGE)


if __name__ == "__main__":
    main()
