import re
from pathlib import Path

import pytest
import torch
from click.testing import Result

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.importers.registry import FOLDERS
from foretell.models.checkpoint import load
from tests.importers import published
from tests.importers.damage import Malicious
from tests.support import command
from tests.support.command import cells, done

CONV = "encoder.attn_layers.0.conv1.weight"


def arguments(form: str) -> list[str]:
    flags = published.ARGUMENTS[form] | {"split": "custom", "target": "OT"}
    return [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]


def run(folder: Path, file: Path, *options: str, form: str = "transformer") -> Result:
    """Import the file into `folder/out`, and export it into `folder/repository`."""
    data = folder / "train.csv"
    if not data.exists():
        published.write_csv(folder)
    given = ["--from", "tslib", "--arch", form, "--data", data, "--out", folder / "out"]
    exported = ["--repository", folder / "repository"]
    return command.run("import", file, *given, *exported, *arguments(form), *options)


def refused(folder: Path, file: Path, *options: str) -> str:
    """The error of an import that writes nothing."""
    result = run(folder, file, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not (folder / "out").exists()
    assert not (folder / "repository").exists()
    return result.stderr


def saved(folder: Path, form: str = "transformer") -> Path:
    """The file of a model; the smallest, which is exported in little time, is a `patchtst`."""
    return published.save(folder, published.make(form), published.keys(form))


# tests/importers/ has tests of all other faults of files.
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("key renamed", f"{CONV} [12, 8]: renamed to {CONV}_old?"),
        ("pickle that runs code", "refused: loading it would call posix.mkdir"),
        ("text", "checkpoint.pth: not a PyTorch file"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, kind: str, message: str) -> None:
    path = saved(tmp_path)
    state = torch.load(path)
    if kind == "key renamed":
        state[f"{CONV}_old"] = state.pop(CONV)
    if kind == "pickle that runs code":
        state["victim"] = Malicious(tmp_path / "victim")
    torch.save(state, path)
    if kind == "text":
        path.write_text("epoch,loss\n1,0.5\n")
    assert message in refused(tmp_path, path)
    assert not (tmp_path / "victim").exists()


def test_writes_a_checkpoint_and_a_bundle(tmp_path: Path) -> None:
    given = ("--name", "wind", "--bounds", "load=-9:9")
    result = run(tmp_path, saved(tmp_path, "patchtst"), *given, form="patchtst")
    assert result.exit_code == 0, result.output
    assert "35" in result.stdout
    assert re.search(r"│ bounds of load +│ -9:9 +│ --bounds", result.stdout)
    checkpoint = load(tmp_path / "out")
    assert checkpoint.info.channels == published.CHANNELS
    manifest = read(tmp_path / "repository" / "wind" / "1")
    assert manifest.bounds == checkpoint.info.bounds == {"load": Bound(low=-9, high=9)}
    assert manifest.test is not None
    assert checkpoint.info.test is not None
    assert manifest.test.model == checkpoint.info.test.model
    assert manifest.test.onnx is not None
    assert manifest.test.onnx.mse == pytest.approx(manifest.test.model.mse, abs=1e-5)


def test_warns_of_an_offset_that_float32_cannot_carry(tmp_path: Path) -> None:
    given = [*("--mean", "10,2e4,0"), *("--std", "1,1,1"), "--channels", "load,wind,OT"]
    options = ["--from", "tslib", "--arch", "patchtst", "--frequency", "h", *given]
    words = [*options, "--out", tmp_path / "out", *arguments("patchtst")]
    for result in (
        done("import", saved(tmp_path, "patchtst"), *words),
        done("export", tmp_path / "out", "--out", tmp_path),
    ):
        message = result.stderr
        assert message.startswith("warning: wind: the mean is more than 10,000 times the stand")


def test_prints_the_provenance_of_each_argument(tmp_path: Path) -> None:
    options = ["--from", "tslib", "--arch", "transformer", "--data", published.write_csv(tmp_path)]
    given = [*options, "--out", tmp_path / "out", *arguments("transformer")]
    rows = cells(done("import", saved(tmp_path), *given).stdout)
    assert ["seq_len", "24", "--set"] in rows
    assert ["d_model", "8", "the file"] in rows
    assert ["calendar", "hour, day_of_week, day_of_month, day_of_year", "the file"] in rows
    assert ["channels", "load, wind, OT", "train.csv"] in rows
    assert ["scaler", "rows 0 to 140", "train.csv"] in rows
    assert (tmp_path / "out" / "config.json").is_file()


@pytest.mark.parametrize("options", [[], ["--repository", "nowhere"]])
def test_neither_out_nor_repository_is_refused(tmp_path: Path, options: list[str]) -> None:
    given = ["--from", "tslib", "--arch", "transformer", *options]
    result = command.run("import", saved(tmp_path), *given)
    assert result.exit_code == 2
    assert "give --out CHECKPOINT, or --repository FOLDER with --name NAME" in result.stderr


# tests/importers/ has more of what is wrong with arguments.
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "../x"], "model name '../x'"),
        (["--arch", "autoformer"], "are those of Transformer: use --from"),
        (["--mean", "1,2,3"], "--mean and --std belong together"),
        (["--channels", "load,wind"], r"2 channels \(load, wind\), but the model has 3; name them"),
        (["--set=seq_len"], "--set seq_len: expected NAME=VALUE, as in seq_len=96"),
        (["--set=colour=red"], "--set colour: unknown argument"),
        (["--model-version", "3x"], "version '3x': expected a whole number"),
        (["--bounds", "lod=0:"], "bounds: no channel 'lod' is forecast; did you mean 'load'?"),
        (["--bounds", "wind=12:"], r"train\.csv: channel 'wind': \d+ of 200 rows are below"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    assert re.search(message, refused(tmp_path, saved(tmp_path), *options))


def test_factor_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, "autoformer")
    result = run(tmp_path, file, "--set=factor=inf", "--arch", "autoformer", form="autoformer")
    assert result.exit_code == 2
    assert "factor" in result.stderr
    assert "finite" in result.stderr


def test_no_bundle_without_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(tmp_path, saved(tmp_path), "--out", str(tmp_path / "file" / "out"))
    assert (result.exit_code, result.stderr.endswith("Not a directory\n")) == (2, True)
    assert not (tmp_path / "repository").exists()


def test_existing_checkpoint_is_kept(tmp_path: Path) -> None:
    file = saved(tmp_path, "patchtst")
    (tmp_path / "out").mkdir()
    result = run(tmp_path, file, form="patchtst")
    assert result.exit_code == 2
    assert "out: exists already; --overwrite replaces it" in result.stderr
    again = run(tmp_path, file, "--overwrite", "--model-version", "7", form="patchtst")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "repository" / "out" / "7").is_dir()


def test_arguments_are_listed() -> None:
    text = done("settings", "import").stdout
    own = [name for options in FOLDERS.values() for name in options]
    assert all(f"│ {name} " in text for name in ("seq_len", "marks", *own))
    assert "│ model " not in text
