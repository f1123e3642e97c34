"""Compare the mechanisms of attention: `make bench-attention DATA=ETTh1.csv`, hours, resumable.

Trains each in a Transformer and a PatchTST, times and weighs its graphs, and writes its part of
docs/attention.md with two charts. What was measured is in `results.jsonl` beside this file; a run
that is given again goes on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import torch

from bench.attention import charts, decoding
from bench.attention.speed import HALF, LENGTHS, WHOLE, at_length, growth, trained_length
from bench.attention.subjects import ARCHITECTURE_NAMES, CONTEXTS, HORIZON, names, settings
from bench.attention.training import Budget, trained
from bench.page import machine, table, write_part
from bench.results import Record, Results
from foretell.data.reading import read
from foretell.demo.data import write_csv

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".bench" / "attention"
RESULTS = Path(__file__).with_name("results.jsonl")
DOCS = ROOT / "docs"
PAGE = DOCS / "attention.md"
BUBBLES, LINES = "attention-errors.svg", "attention-lengths.svg"
MAPS = "attention-guidance.svg"
DEMO = "demo"
_PARTS = (*ARCHITECTURE_NAMES, "decoding", "cost", "page")
_HEAD = ("mechanism", "architecture", "MSE", "MAE", "MSE, demo's data", "faithful", "ms", "MiB")
_TEXT = """\
`make bench-attention DATA=…/ETTh1.csv` wrote this part. {machine}

Each model: {horizon} steps from {contexts}, 32 features, 4 heads, two encoder layers, {epochs}
epochs at most. MSE and MAE are those of the test split of {data}, standardised, the mean of
{seeds} (half their range behind ±), or of fewer where a row says so; the demo's data is one year of
hourly weather, one seed.
*Faithful*: a tenth of the steps of the history is erased, those that the first stage of attention
gives the largest weights; how many times as much that changes the forecast as erasing as many by
lot. Where a mechanism cannot be, in a decoder or its cross-attention, say, the model has softmax.
*ms* and *MiB*: one window in onnxruntime on the CPU, one thread of a server, and what loading
the graph and running it adds to a process.

{rows}
![error by speed; area is memory]({bubbles})

## By length

A Transformer of one encoder layer, 64 features and 4 heads: milliseconds of one window, and in
brackets how many times as long as softmax, measured in turns with it. The last column is how many
times as long {whole} steps take as {half}, in turns as well.

{lengths}
![time by length]({lines})
"""

_DECODING = """\
## Decoding

`make bench-attention` wrote this part as well: a Transformer as above that decodes in other ways
([architectures.md](architectures.md#decoding)), on {data}, {epochs} epochs at most; the mean
of {seeds}, half their range behind ±.

{ways}
Milliseconds of one window by the steps of the horizon, context 96, both in turns:

{horizons}
What cross-attention gives each step of the history, the mean over windows and heads, without a
penalty on what is far from the diagonal and with one:

![mean cross-attention, without guidance and with it]({maps})
"""


def train(
    architecture: str,
    data: Path,
    seeds: Sequence[int],
    epochs: int,
    results: Results,
    without: Collection[str] = (),
) -> None:
    """Train an architecture with each mechanism but some, where that is not done yet."""
    demo_file = FOLDER / f"demo-{architecture}.csv"
    if not demo_file.exists():
        write_csv(demo_file)
    ett, demo = read(data), read(demo_file)
    published, thirds = Budget(epochs, "ett-hourly"), Budget(epochs, (0.7, 0.1, 0.2))
    rounds = [(data.stem, ett, published, seed) for seed in seeds]
    rounds.insert(1, (DEMO, demo, thirds, seeds[0]))
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "checkpoint"
        for where, series, budget, seed in rounds:
            names = [name for kind, name in _models() if kind == architecture]
            for mechanism in (name for name in names if name not in without):
                key = f"train {where} {architecture} {mechanism} {seed} {epochs}"
                results.measure(
                    key, partial(trained, series, architecture, mechanism, seed, budget, out)
                )


def measure_costs(results: Results) -> None:
    """Time and memory of every graph that is not measured yet."""
    for architecture, mechanism in _models():
        key = f"cost {architecture} {mechanism}"
        results.measure(key, partial(trained_length, architecture, mechanism))
    for mechanism in names():
        for length in LENGTHS:
            results.measure(f"length {mechanism} {length}", partial(at_length, mechanism, length))
        results.measure(f"growth {mechanism}", partial(growth, mechanism))


def write(results: Results, data: str, seeds: Sequence[int], epochs: int) -> None:
    """Write the page's parts and its charts, of what is measured so far."""
    found = results.records
    rows, panels = [], {architecture: [] for architecture in ARCHITECTURE_NAMES}
    measured = {
        (architecture, name)
        for architecture, name in _models()
        if f"cost {architecture} {name}" in found
        and f"train {data} {architecture} {name} {seeds[0]} {epochs}" in found
    }
    for architecture, mechanism in (each for each in _models() if each in measured):
        runs = _runs(found, f"train {data} {architecture} {mechanism}", seeds, epochs)
        demo = found.get(f"train {DEMO} {architecture} {mechanism} {seeds[0]} {epochs}")
        cost = found[f"cost {architecture} {mechanism}"]
        error = mean(run["mse"] for run in runs)
        faithful = [run["faithful"] for run in runs if "faithful" in run]
        rows.append(
            (
                _told(f"`{mechanism}`", runs, seeds),
                architecture,
                *_errors(runs),
                f"{demo['mse']:.3f}" if demo else "",
                f"{mean(faithful):.1f}" if faithful else "",
                f"{cost['ms']:.2f}",
                f"{cost['mib']:.0f}",
            )
        )
        bubble = charts.Bubble(mechanism, 1e3 / cost["ms"], error, cost["mib"])
        panels[architecture].append(bubble)
    lines = {
        mechanism: {
            length: found[f"length {mechanism} {length}"]
            for length in LENGTHS
            if f"length {mechanism} {length}" in found
        }
        for mechanism in names()
    }
    lines = {name: points for name, points in lines.items() if WHOLE in points}
    charts.error_by_speed(panels, DOCS / BUBBLES)
    charts.time_by_length(
        {name: {n: each["ms"] for n, each in points.items()} for name, points in lines.items()},
        DOCS / LINES,
    )
    text = _TEXT.format(
        machine=machine("torch", "onnxruntime"),
        horizon=HORIZON,
        contexts=" and ".join(f"{CONTEXTS[name]} ({name})" for name in ARCHITECTURE_NAMES),
        epochs=epochs,
        data=data,
        seeds=_seeds(len(seeds)),
        rows=table(_HEAD, rows),
        bubbles=BUBBLES,
        lines=LINES,
        half=HALF,
        whole=WHOLE,
        lengths=table(
            ("mechanism", *map(str, LENGTHS), f"MiB at {WHOLE}", f"from {HALF}"),
            (
                (
                    f"`{name}`",
                    *(_timed(points.get(length)) for length in LENGTHS),
                    f"{points[WHOLE]['mib']:.0f} ({points[WHOLE]['of_memory']:.2f})",
                    _grown(found.get(f"growth {name}")),
                )
                for name, points in lines.items()
            ),
        ),
    )
    write_part("attention", text, PAGE)
    maps = decoding.maps_of(data, FOLDER)
    if maps:
        charts.guidance(maps, DOCS / MAPS)
    ways = [
        (_told(way, runs, seeds), *_errors(runs))
        for way in decoding.WAYS
        if (runs := _runs(found, f"decoding {data} {way}", seeds, epochs))
    ]
    horizons = [(n, found[f"horizon {n}"]) for n in decoding.HORIZONS if f"horizon {n}" in found]
    text = _DECODING.format(
        data=data,
        epochs=epochs,
        seeds=_seeds(len(seeds)),
        ways=table(("way", "MSE", "MAE"), ways),
        horizons=table(
            ("horizon", "one pass", "chunks of 24"),
            (
                (str(steps), f"{each['one_pass']:.2f}", f"{each['chunks']:.2f}")
                for steps, each in horizons
            ),
        ),
        maps=MAPS,
    )
    write_part("decoding", text, PAGE)


def _models() -> Iterable[tuple[str, str]]:
    """Architecture and mechanism of each that can be."""
    for mechanism in names():
        for architecture in ARCHITECTURE_NAMES:
            try:
                settings(architecture, mechanism, channels=1, context=96, horizon=HORIZON)
            except ValueError:
                continue
            yield architecture, mechanism


def _runs(
    found: Mapping[str, Record], about: str, seeds: Sequence[int], epochs: int
) -> list[Record]:
    """What was trained so far, by seed."""
    keys = [f"{about} {seed} {epochs}" for seed in seeds]
    return [found[key] for key in keys if key in found]


def _told(name: str, runs: Sequence[Record], seeds: Sequence[int]) -> str:
    """What was trained, and how often if that is not with every seed."""
    return name if len(runs) == len(seeds) else f"{name} ({_seeds(len(runs))})"


def _errors(runs: Sequence[Record]) -> tuple[str, str]:
    return _spread(run["mse"] for run in runs), _spread(run["mae"] for run in runs)


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _timed(record: Record | None) -> str:
    return f"{record['ms']:.1f} ({record['times']:.2f})" if record else ""


def _grown(record: Record | None) -> str:
    return f"{record['grows']:.2f}" if record else ""


def _spread(values: Iterable[float]) -> str:
    found = list(values)
    spread = (max(found) - min(found)) / 2
    return f"{mean(found):.3f}" + (f" ± {spread:.3f}" if len(found) > 1 else "")


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.attention", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="ETTh1.csv")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each on it")
    parser.add_argument("--epochs", type=int, default=5, help="of each training, at most")
    parser.add_argument("--only", choices=_PARTS, help="one part; several may run side by side")
    parser.add_argument(
        "--without", nargs="*", default=(), help="mechanisms that are not trained, as they are slow"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(RESULTS)
    seeds = range(given.seeds)
    for part in [given.only] if given.only else _PARTS:
        if part in ARCHITECTURE_NAMES:
            train(part, given.data, seeds, given.epochs, results, given.without)
        elif part == "decoding":
            budget = Budget(given.epochs, "ett-hourly")
            decoding.measure(results, given.data.stem, read(given.data), seeds, budget, FOLDER)
        elif part == "cost":
            measure_costs(results)
        else:
            # What others have measured meanwhile is in the file.
            write(Results(results.path), given.data.stem, seeds, given.epochs)


if __name__ == "__main__":
    main()
