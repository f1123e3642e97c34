"""The comparison of mechanisms: what is compared, kept and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.attention import __main__ as comparison
from bench.attention import decoding, speed
from bench.attention.speed import LENGTHS
from bench.attention.subjects import names, settings
from bench.attention.training import Budget, _by_step, faithfulness, trained
from bench.results import Record, Results
from foretell.bundle.attention import Axis, stage
from foretell.bundle.manifest import Scaler
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.data.table import Table
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.attention.evidence import Dense, Sparse
from foretell.models.forecaster import Explained, Forecaster, Inputs
from foretell.timeaxis.frequency import Frequency
from foretell.training.windows import Windows

HOUR = Frequency.parse("h")
SIZES = {"channels": 1, "context": 24, "horizon": 8}


def test_a_mechanism_is_wherever_it_may_be() -> None:
    fields = settings("transformer", "autocorrelation", encoder_layers=2, **SIZES)
    assert [one["mechanism"] for one in fields["attention"]] == [
        *["autocorrelation"] * 2,
        # Not causal in the decoder.
        "softmax",
        "autocorrelation",
    ]
    with pytest.raises(ValueError, match="autocorrelation may be nowhere in a patchtst"):
        settings("patchtst", "autocorrelation", **SIZES)


def test_every_mechanism_is_compared_in_some_architecture() -> None:
    found = {mechanism for _, mechanism in comparison._models()}
    assert found == set(names())
    assert names()[0] == "softmax"


def test_a_run_that_is_given_again_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, calls = tmp_path / "deep" / "results.jsonl", []

    def measurement() -> Record:
        calls.append(1)
        return {"mse": 0.5 * len(calls), "precision": "float32"}

    first = Results(path)
    assert [first.measure(key, measurement)["mse"] for key in "aba"] == [0.5, 1.0, 0.5]
    assert Results(path).measure("b", measurement) == {"mse": 1.0, "precision": "float32"}
    assert len(calls) == 2
    assert capsys.readouterr().out.splitlines()[-1] == "b: mse 1, precision float32"


class Reader(Forecaster):
    """Repeats what step 3 had, and says that it looked at another one."""

    def __init__(self, shown: int) -> None:
        super().__init__(DLinearConfig(channels=1, context=24, horizon=8))
        steps = Axis(length=24, start=-24)
        self.shown = shown
        self.stages = (stage("encoder.0.self", "softmax", "dense", 1, steps, steps),)

    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        forecast = inputs.history[:, 3:4].expand(-1, 8, -1)
        weights = torch.zeros(len(forecast), 1, 24, 24)
        weights[..., self.shown] = 1
        # Where nothing is said, the later steps are taken.
        weights += 1e-6 * torch.arange(24)
        return Explained(forecast, {"encoder.0.self": Dense(weights)} if explain else {})


@pytest.mark.parametrize(("shown", "low", "high"), [(3, 3.0, 40.0), (23, 0.0, 0.0)])
def test_a_map_is_faithful_if_what_it_shows_counts(shown: int, low: float, high: float) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 1))
    times = HOUR.steps_from(np.datetime64("2024-01-01T00:00"), 200)
    table = Table(times, rows, ("a",), HOUR)
    windows = Windows(Panel((table,)), [Span(0, 0, 200)], 24, 8, Scaler(mean=(0.0,), std=(1.0,)))
    found = faithfulness(Reader(shown).eval(), windows)
    assert low <= found <= high


def test_weights_of_patches_and_of_few_keys_are_those_of_steps() -> None:
    reader = Reader(0)
    patches = Axis(of="patches", length=3, start=-24, stride=8, width=12, end=0)
    reader.stages = (stage("a", "softmax", "dense", 1, patches, patches),)
    weights = torch.tensor([0.5, 0.25, 0.25]).expand(2, 1, 3, 3)
    found = _by_step(reader, Dense(weights), 24)
    expected = torch.zeros(24)
    for start, share in ((0, 0.5), (8, 0.25), (16, 0.25)):
        for step in range(start, start + 12):
            # The last patch repeats the last step.
            expected[min(step, 23)] += share / 12
    torch.testing.assert_close(found, expected.expand(2, 24))
    keys = torch.tensor([[0, 1], [2, -1], [0, 2]]).expand(2, 1, 3, 2)
    shares = torch.tensor([[0.5, 0.5], [1.0, 9.0], [0.25, 0.75]]).expand(2, 1, 3, 2)
    dense = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.25, 0.0, 0.75]])
    torch.testing.assert_close(
        _by_step(reader, Sparse(keys, shares), 24),
        _by_step(reader, Dense(dense.expand(2, 1, 3, 3)), 24),
    )


def test_the_page_has_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "DOCS", tmp_path)
    monkeypatch.setattr(comparison, "FOLDER", tmp_path)
    monkeypatch.setattr(comparison, "PAGE", tmp_path / "attention.md")
    monkeypatch.setattr(comparison, "names", lambda: ["softmax", "autocorrelation"])
    results = Results(tmp_path / "results.jsonl")
    cost = {"ms": 2.0, "times": 1.0, "mib": 30.0, "of_memory": 1.0}
    for architecture, name in comparison._models():
        for data, seed in (("ETTh1", 0), ("ETTh1", 1), ("demo", 0)):
            record = {"mse": 0.4 + 0.02 * seed, "mae": 0.41, "seconds": 1.0}
            results.records[f"train {data} {architecture} {name} {seed} 3"] = record
        results.records[f"cost {architecture} {name}"] = cost
    for name in comparison.names():
        for length in LENGTHS:
            results.records[f"length {name} {length}"] = cost | {"times": 0.5}
    results.records["growth autocorrelation"] = {"grows": 2.125}
    for way in decoding.WAYS:
        for seed in range(2):
            record = {"mse": 0.7 + 0.02 * seed, "mae": 0.5}
            results.records[f"decoding ETTh1 {way} {seed} 3"] = record
    for horizon in decoding.HORIZONS:
        results.records[f"horizon {horizon}"] = {"one_pass": horizon / 96, "chunks": 2.0}
    for way in (decoding.PLAIN, decoding.GUIDED):
        np.save(decoding._map_file(tmp_path, "ETTh1", way), np.eye(4, 5))
    # One that takes long may have fewer seeds.
    del results.records["train ETTh1 patchtst softmax 1 3"]
    del results.records["decoding ETTh1 one pass, guided 1 3"]
    comparison.write(results, "ETTh1", range(2), 3)
    text = (tmp_path / "attention.md").read_text()
    assert "| `softmax` (one seed) | patchtst | 0.400 | 0.410 |" in text
    row = "| `softmax` | transformer | 0.410 ± 0.010 | 0.410 ± 0.000 | 0.400 |  | 2.00 | 30 |"
    assert row in text
    assert "| `autocorrelation` | 2.0 (0.50) | 2.0 (0.50) |" in text
    # Of the other one it is not measured yet.
    assert "| 30 (1.00) | 2.12 |" in text
    assert "| 30 (1.00) |  |" in text
    assert "| `softmax` | transformer | 0.410" in text
    assert "| one pass | 0.710 ± 0.010 | 0.500 ± 0.000 |" in text
    assert "| one pass, guided (one seed) | 0.700 | 0.500 |" in text
    assert "| 384 | 4.00 | 2.00 |" in text
    for chart in (comparison.BUBBLES, comparison.LINES, comparison.MAPS):
        assert f"({chart})" in text
        assert (tmp_path / chart).read_text().startswith("<?xml")
    # The maps are of another machine: their picture stays.
    decoding._map_file(tmp_path, "ETTh1", decoding.GUIDED).unlink()
    (tmp_path / comparison.MAPS).write_text("as drawn there")
    comparison.write(results, "ETTh1", range(2), 3)
    assert (tmp_path / comparison.MAPS).read_text() == "as drawn there"
    assert f"({comparison.MAPS})" in (tmp_path / "attention.md").read_text()


def cycles(rows: int) -> Panel:
    """Hours of a daily cycle."""
    hours = np.arange(rows)
    values = np.sin(hours * np.pi / 12)[:, None] + 0.01 * (hours % 5)[:, None]
    times = HOUR.steps_from(np.datetime64("2024-01-01T00:00"), rows)
    return Panel((Table(times, values, ("a",), HOUR),))


def test_some_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_names: set[str] = set()

    def note(_: object, __: object, name: str, *___: object) -> dict[str, float]:
        trained_names.add(name)
        return {}

    monkeypatch.setattr(comparison, "FOLDER", tmp_path)
    monkeypatch.setattr(comparison, "trained", note)
    monkeypatch.setattr(comparison, "write_csv", lambda path: cycle_file(path))
    cycle_file(tmp_path / "ETTh1.csv")
    results = Results(tmp_path / "results.jsonl")
    comparison.train("patchtst", tmp_path / "ETTh1.csv", range(2), 1, results, ["reformer"])
    assert "softmax" in trained_names
    assert "reformer" not in trained_names
    assert len(results.records) == 3 * len(trained_names)


def cycle_file(path: Path) -> None:
    """Hours of a daily cycle as CSV."""
    hours = np.arange("2024-01-01T00", "2024-01-03T00", dtype="datetime64[h]")
    rows = [f"{hour},{index % 24}" for index, hour in enumerate(hours)]
    path.write_text("\n".join(["date,load", *rows, ""]))


def test_a_mechanism_is_trained_and_measured(tmp_path: Path) -> None:
    budget = Budget(1, (0.5, 0.2, 0.3))
    found = trained(cycles(900), "transformer", "softmax", 0, budget, tmp_path / "out")
    assert found.keys() == {"mse", "mae", "seconds", "faithful"}
    assert 0 < found["mse"] < 2


def test_twice_as_many_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(calls: Mapping[int, Callable[[], Any]], _: float) -> dict[int, float]:
        assert {call()["forecast"].shape for call in calls.values()} == {(1, 96, speed.CHANNELS)}
        return {context: context / 96 for context in calls}

    monkeypatch.setattr(speed, "interleaved_medians", timed)
    monkeypatch.setattr(speed, "HALF", 96)
    monkeypatch.setattr(speed, "WHOLE", 288)
    assert speed.growth("softmax") == {"grows": 3}


def test_ways_of_decoding_are_trained_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        decoding, "WAYS", {name: decoding.WAYS[name] for name in list(decoding.WAYS)[3:5]}
    )
    monkeypatch.setattr(decoding, "HORIZONS", (24,))
    monkeypatch.setattr(speed, "SECONDS", 0.1)
    results = Results(tmp_path / "results.jsonl")
    budget = Budget(1, (0.5, 0.2, 0.3))
    decoding.measure(results, "sine", cycles(1000), range(2), budget, tmp_path)
    assert all(
        record.keys() in ({"mse", "mae"}, {"one_pass", "chunks"})
        for record in results.records.values()
    )
    assert len(results.records) == 2 * 2 + 1
    way = next(iter(decoding.WAYS))
    first, second = (results.records[f"decoding sine {way} {seed} 1"] for seed in range(2))
    assert first["mse"] != second["mse"]
    for way in decoding.WAYS:
        assert np.load(decoding._map_file(tmp_path, "sine", way)).shape == (144, 96)
