"""Train the published recipes: `make bench-accuracy DATA=ETT-small`, days, resumable.

Writes docs/accuracy.md after each result. What was measured is in results.jsonl next to this file,
which is kept with the code: nobody has to train it again. The state of each training is in
`.bench/accuracy/`; a run that is given again goes on, and several side by side share the work.
"""

from __future__ import annotations

import argparse
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from bench.accuracy.page import PATIENCE, WIDE, key_of, whole_key_of, write
from bench.results import Record, Results
from foretell.data.reading import read
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import load, load_info
from foretell.settings.given import training_of
from foretell.settings.presets import Preset, presets
from foretell.training.accuracy import evaluate
from foretell.training.config import TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.train import train
from foretell.training.trainer import choose_device, choose_precision
from foretell.training.windows import Windows

RESULTS = Path(__file__).with_name("results.jsonl")
FOLDER = Path(__file__).parent.parent.parent / ".bench" / "accuracy"
# Of errors that were written down.
_ROUNDING = 1e-3
# Those that are claimed first; the others follow in the order of their names.
_FIRST = (
    "dlinear/etth1-96",
    "patchtst-42/etth1-96",
    "patchtst-42/etth2-96",
    "patchtst-42/etth1-192",
    "autoformer/etth1-96",
    "autoformer/etth2-96",
)


def order(found: dict[str, Preset]) -> list[Preset]:
    """What is trained, first things first: linear models take minutes."""
    rest = sorted(found, key=lambda name: (not name.startswith("dlinear/etth"), name))
    return [found[name] for name in dict.fromkeys([*_FIRST, *rest]) if name in found]


def trained(preset: Preset, seed: int, data: Path, folder: Path, precision: str) -> Record:
    """Train a recipe with a seed, or go on with it, and measure it on its test split."""
    panel, settings = read(_file_of(preset, data)), _settings_of(preset, seed, precision)
    begun = time.monotonic()
    checkpoint = train(settings, panel, folder, overwrite=True)
    minutes = (time.monotonic() - begun) / 60
    test, training = checkpoint.info.test, checkpoint.info.training
    assert test is not None
    assert training is not None
    found: Record = {"mse": test.model.mse, "mae": test.model.mae, "windows": test.windows}
    found |= {"last_mse": test.last_value.mse, "last_mae": test.last_value.mae}
    if test.seasonal_naive is not None:
        found |= {"season_mse": test.seasonal_naive.mse, "season_mae": test.seasonal_naive.mae}
    found |= {"minutes": minutes, "epochs": training.epochs, "best": training.best_epoch}
    return found | {"precision": training.precision}


def in_whole_batches(preset: Preset, data: Path, folder: Path) -> Record:
    """Measure a trained recipe on the windows that the published code measures.

    It drops the last batch of the test split where that is not whole.
    """
    panel, settings = read(_file_of(preset, data)), training_of(preset.settings)
    prepared = prepare(settings, panel)
    (span,) = prepared.split.test
    dropped = len(prepared.test) % settings.batch_size
    spans = [span._replace(end=span.end - dropped)]
    windows = Windows.of(prepared.config, panel, spans, prepared.scaler)
    model = load(folder).model
    found = evaluate(model, windows, windows_that_fit(model))
    return {"mse": found.mse, "mae": found.mae, "windows": len(windows)}


def _is_of(folder: Path, record: Record) -> bool:
    """Whether weights lie there, and are those of a training."""
    if not folder.is_dir():
        return False
    test = load_info(folder).test
    return test is not None and abs(test.model.mse - record["mse"]) < _ROUNDING


def precision_of(preset: Preset, asked: str) -> str:
    """What a recipe is trained in here, if so much is asked for of wide models."""
    settings = _settings_of(preset, 0, asked)
    return choose_precision(settings, choose_device(settings))


def _settings_of(preset: Preset, seed: int, precision: str) -> TrainingConfig:
    given = preset.settings | {"seed": seed}
    given["patience"] = min(given["patience"], PATIENCE)
    if given["model"].get("d_model", 0) >= WIDE:
        given["precision"] = precision
    return training_of(given)


def _file_of(preset: Preset, data: Path) -> Path:
    wanted = preset.name.partition("/")[2].rpartition("-")[0]
    (file,) = (each for each in data.glob("*.csv") if each.stem.lower() == wanted)
    return file


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether nobody else has it; nobody does while this lasts, nor after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def main() -> None:
    """Train, and write the page after each result."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of ETTh1.csv and others")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each, one of all first")
    parser.add_argument("--only", nargs="*", help="presets, instead of all there are")
    parser.add_argument("--page", action="store_true", help="train nothing, write the page")
    parser.add_argument("--precision", default="auto", help="of wide models; bfloat16, say")
    given = parser.parse_args()
    torch.set_num_threads(1)
    there = {file.stem.lower() for file in given.data.glob("*.csv")}
    found = {
        name: one
        for name, one in presets().items()
        if name.partition("/")[2].rpartition("-")[0] in there
        and (given.only is None or name in given.only)
    }
    for seed in range(given.seeds):
        for preset in order(found) if not given.page else ():
            precision = precision_of(preset, given.precision)
            key = key_of(preset, seed, precision)
            with claimed(FOLDER / "claims" / key.replace("/", "-")) as ours:
                # What others have measured meanwhile is in the file.
                results = Results(RESULTS)
                known = len(results.records)
                name, _, *own = key.split()
                folder = FOLDER / "-".join([name.replace("/", "-"), *own])
                if ours and key not in results.records:
                    measured = partial(trained, preset, seed, given.data, folder, given.precision)
                    results.measure(key, measured)
                # Trainings of other machines have left no weights here.
                if ours and _is_of(folder, results.records[key]):
                    results.measure(
                        whole_key_of(key), partial(in_whole_batches, preset, given.data, folder)
                    )
                if len(results.records) > known:
                    write(Results(RESULTS).records, order(presets()))
    write(Results(RESULTS).records, order(presets()))


if __name__ == "__main__":
    main()
