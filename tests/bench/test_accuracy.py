from pathlib import Path

import pytest

from bench.accuracy import __main__ as accuracy
from bench.accuracy.__main__ import (
    _is_of,
    claimed,
    in_whole_batches,
    order,
    precision_of,
    trained,
)
from bench.accuracy.page import PAGE, key_of, whole_key_of, write
from bench.results import Results
from foretell.settings.presets import preset, presets
from tests.docs.tables import rows_below

RECORD = {
    "mse": 0.4,
    "mae": 0.41,
    "windows": 2785,
    "last_mse": 1.3,
    "last_mae": 0.7,
    "season_mse": 0.5,
    "season_mae": 0.6,
    "minutes": 3.4,
    "epochs": 9,
    "best": 6,
    "precision": "float32",
}


def test_what_is_claimed_comes_first() -> None:
    found = [one.name for one in order(dict(presets()))]
    assert found[0] == "dlinear/etth1-96"
    assert sorted(found) == sorted(presets())


def test_the_page_has_what_was_measured(tmp_path: Path) -> None:
    page, one = tmp_path / "accuracy.md", preset("patchtst-42/etth1-96")
    records = {key_of(one, 0): RECORD, key_of(one, 1): RECORD | {"mse": 0.5}}
    records[whole_key_of(key_of(one, 1))] = {"mse": 0.45, "mae": 0.4, "windows": 2688}
    records[key_of(preset("dlinear/etth1-96"), 0)] = RECORD | {"mse": 0.38}
    # Of what the recipe was before it was changed.
    records[key_of(one._replace(settings=one.settings | {"epochs": 7}), 2)] = RECORD
    write(records, order(dict(presets())), page)
    linear, ours = rows_below(page, "| preset |")
    assert linear[:3] == ["`dlinear/etth1-96`", "0.380 / 0.410", ""]
    assert ours == [
        *("`patchtst-42/etth1-96`", "0.450 ± 0.050 / 0.410 ± 0.000", "0.450 / 0.400"),
        *("0.375 / 0.399", "2"),
        *("0.380 / 0.410", "1.300 / 0.700", "0.500 / 0.600", "2,785", "9 (6), 9 (6)", "3"),
    ]


def test_another_precision_is_told_of_and_not_averaged(tmp_path: Path) -> None:
    page, one = tmp_path / "accuracy.md", preset("autoformer/etth1-96")
    before = {name: value for name, value in RECORD.items() if name != "precision"}
    reduced = RECORD | {"mse": 0.6, "precision": "bfloat16"}
    keys = [
        key_of(one, seed, precision) for precision in ("float32", "bfloat16") for seed in (0, 1)
    ]
    records = dict(zip(keys, (before, RECORD, reduced, reduced), strict=True))
    records[whole_key_of(keys[2])] = {"mse": 0.7, "mae": 0.8, "windows": 2784}
    assert len(records) == 5
    write(records, order(dict(presets())), page)
    usual, other = rows_below(page, "| preset |")
    assert usual[:3] == ["`autoformer/etth1-96`", "0.400 ± 0.000 / 0.410 ± 0.000", ""]
    assert other[:2] == ["`autoformer/etth1-96`, bfloat16", "0.600 ± 0.000 / 0.410 ± 0.000"]
    assert (other[2], usual[4], other[4]) == ("0.700 / 0.800", "2", "2")


def test_only_wide_models_are_trained_in_less() -> None:
    wide, narrow = preset("autoformer/etth1-96"), preset("patchtst-42/etth1-96")
    assert [precision_of(one, "bfloat16") for one in (wide, narrow)] == ["bfloat16", "float32"]
    assert precision_of(wide, "float32") == "float32"


def test_the_page_is_of_all_results(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    write(Results(accuracy.RESULTS).records, order(dict(presets())), page)
    rows = rows_below(page, "| preset |")
    assert rows == rows_below(PAGE, "| preset |")
    # None is of a recipe that was changed since.
    keys = [key for key in Results(accuracy.RESULTS).records if not key.endswith(" whole")]
    assert sum(int(row[4]) for row in rows) == len(keys)


def test_nobody_else_has_what_is_claimed(tmp_path: Path) -> None:
    with claimed(tmp_path / "claims" / "a") as ours, claimed(tmp_path / "claims" / "a") as theirs:
        assert (ours, theirs) == (True, False)
    with claimed(tmp_path / "claims" / "a") as again:
        assert again


def test_a_recipe_is_trained_and_measured(tmp_path: Path, ett: Path) -> None:
    one = preset("dlinear/etth1-96")
    small = {"splits": "0.6,0.2,0.2", "context": 24, "horizon": 4, "epochs": 1}
    one = one._replace(settings=one.settings | small)
    found = trained(one, 3, ett, tmp_path / "out", "auto")
    assert found.keys() == RECORD.keys()
    assert found["precision"] == "float32"
    assert (found["epochs"], found["windows"]) == (1, 240 // 5 - 3)
    assert _is_of(tmp_path / "out", found)
    assert not _is_of(tmp_path / "out", RECORD)
    assert not _is_of(tmp_path / "other", found)
    whole = {}
    for size in (32, 45):
        other = one._replace(settings=one.settings | {"batch_size": size})
        whole[size] = in_whole_batches(other, ett, tmp_path / "out")
        assert whole[size]["windows"] == size
    assert whole[45]["mse"] == pytest.approx(found["mse"], abs=5e-4)
    assert whole[32]["mse"] != pytest.approx(found["mse"], abs=5e-4)


@pytest.fixture
def ett(tmp_path: Path) -> Path:
    """A folder with a file of the name that the preset is for."""
    folder = tmp_path / "ett"
    folder.mkdir()
    rows = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00:00,{i % 24},{i}" for i in range(240)]
    (folder / "ETTh1.csv").write_text("\n".join(["date,OT,HUFL", *rows, ""]))
    return folder


def test_a_run_goes_on(tmp_path: Path, ett: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "FOLDER", tmp_path)
    monkeypatch.setattr(accuracy, "RESULTS", tmp_path / "results.jsonl")
    seen: list[list[str]] = []
    monkeypatch.setattr(accuracy, "write", lambda records, _: seen.append(list(records)))
    monkeypatch.setattr(accuracy, "trained", lambda *_: RECORD)
    whole = {"mse": 0.3, "mae": 0.3, "windows": 9}
    monkeypatch.setattr(accuracy, "in_whole_batches", lambda *_: whole)
    monkeypatch.setattr(accuracy, "_is_of", lambda folder, _: folder.name.endswith("192-0"))
    names = ["dlinear/etth1-96", "dlinear/etth1-192", "dlinear/ettm1-96"]
    words = ["bench.accuracy", f"--data={ett}", "--seeds=1", "--only", *names]
    monkeypatch.setattr("sys.argv", words)
    accuracy.main()
    # Of what there is no data for, nothing is measured.
    first, second = (key_of(preset(name), 0) for name in names[:2])
    # Nor on whole batches what has left no weights.
    assert seen[-1] == [first, second, whole_key_of(second)]
    # A training in another precision is another one, of a folder of its own.
    monkeypatch.setattr(accuracy, "precision_of", lambda *_: "bfloat16")
    monkeypatch.setattr(
        accuracy, "_is_of", lambda folder, _: folder.name.endswith("192-0-bfloat16")
    )
    accuracy.main()
    other, another = (key_of(preset(name), 0, "bfloat16") for name in names[:2])
    assert seen[-1][3:] == [other, another, whole_key_of(another)]
    monkeypatch.setattr(accuracy, "trained", lambda *_: pytest.fail("it was measured"))
    monkeypatch.setattr(accuracy, "in_whole_batches", lambda *_: pytest.fail("it was measured"))
    accuracy.main()
