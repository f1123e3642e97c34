import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.commands.export import command as export
from foretell.commands.import_ import command
from foretell.commands.settings import command as settings
from foretell.importers.registry import FOLDERS
from foretell.models.checkpoint import load
from tests.importers import published
from tests.importers.damage import Malicious

LAYOUT = published.keys("transformer")
CONV = "encoder.attn_layers.0.conv1.weight"


def arguments(form: str) -> list[str]:
    flags = published.ARGUMENTS[form] | {"split": "custom", "target": "OT"}
    return [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]


def run(folder: Path, file: Path, *options: str, form: str = "transformer") -> Result:
    """Import the file into `folder/out`, and export it into `folder/repository`."""
    data = folder / "train.csv"
    if not data.exists():
        published.write_csv(folder)
    given = ["--from", "tslib", "--arch", form, "--data", str(data), "--out", str(folder / "out")]
    exported = ["--repository", str(folder / "repository")]
    return CliRunner().invoke(command, [str(file), *given, *exported, *arguments(form), *options])


def state() -> dict[str, torch.Tensor]:
    return published.publish(published.make("transformer"), LAYOUT)


def small(folder: Path) -> Path:
    """A model that is exported in little time."""
    return published.save(folder, published.make("patchtst"), published.keys("patchtst"))


def write_bad(path: Path, kind: str) -> None:
    content: dict[str, object] = dict(state())
    match kind:
        case "key removed":
            del content[CONV]
        case "key renamed":
            content[f"{CONV}_old"] = content.pop(CONV)
        case "key transposed":
            content[CONV] = state()[CONV].transpose(0, 1)
        case "pickle that runs code":
            content["victim"] = Malicious(path.parent / "victim")
        case "empty":
            path.write_bytes(b"")
            return
        case "text":
            path.write_text("epoch,loss\n1,0.5\n")
            return
    torch.save(content, path)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("key removed", [], f"missing (1):\n    {CONV} [12, 8]"),
        ("key renamed", [], f"{CONV} [12, 8]: renamed to {CONV}_old?"),
        ("key transposed", [], f"{CONV} is [8, 12], expected [12, 8]: transposed?"),
        ("wrong architecture", ["--arch", "autoformer"], "are those of Transformer: use --from"),
        ("pickle that runs code", [], "refused: loading it would call posix.mkdir"),
        ("empty", [], "bad.pth: the file is empty"),
        ("text", [], "bad.pth: not a PyTorch file"),
    ],
)
def test_bad_file_is_refused_and_nothing_written(
    tmp_path: Path, kind: str, options: list[str], message: str
) -> None:
    path = tmp_path / "bad.pth"
    write_bad(path, kind)
    result = run(tmp_path, path, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert {entry.name for entry in tmp_path.iterdir()} == {"bad.pth", "train.csv"}


def test_writes_a_checkpoint_and_a_bundle(tmp_path: Path) -> None:
    result = run(tmp_path, small(tmp_path), "--name", "wind", form="patchtst")
    assert result.exit_code == 0, result.output
    assert "35" in result.stdout
    checkpoint = load(tmp_path / "out")
    assert checkpoint.info.channels == published.CHANNELS
    manifest = read(tmp_path / "repository" / "wind" / "1")
    assert manifest.test is not None
    assert checkpoint.info.test is not None
    assert manifest.test.model == checkpoint.info.test.model
    assert manifest.test.onnx is not None
    assert manifest.test.onnx.mse == pytest.approx(manifest.test.model.mse, abs=1e-5)


def test_bounds(tmp_path: Path) -> None:
    file, options = small(tmp_path), ["--name", "wind", "--bounds", "load=-9:9"]
    result = run(tmp_path, file, *options, "--bounds", "wind=12:", form="patchtst")
    assert result.exit_code == 2
    assert re.search(r"train\.csv: channel 'wind': \d+ of 200 rows are below", result.stderr)
    assert not (tmp_path / "out").exists()
    result = run(tmp_path, file, *options, form="patchtst")
    assert result.exit_code == 0, result.output
    assert re.search(r"│ bounds of load +│ -9:9 +│ --bounds", result.stdout)
    bounds = {"load": Bound(low=-9, high=9)}
    assert load(tmp_path / "out").info.bounds == bounds
    assert read(tmp_path / "repository" / "wind" / "1").bounds == bounds


def test_warns_of_an_offset_that_float32_cannot_carry(tmp_path: Path) -> None:
    given = [*("--mean", "10,2e4,0"), *("--std", "1,1,1"), "--channels", "load,wind,OT"]
    options = ["--from", "tslib", "--arch", "patchtst", "--frequency", "h", *given]
    words = [*options, "--out", str(tmp_path / "out"), *arguments("patchtst")]
    result = CliRunner().invoke(command, [str(small(tmp_path)), *words])
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("warning: wind: the mean is more than 10,000 times the stand")
    exported = CliRunner().invoke(export, [str(tmp_path / "out"), "--out", str(tmp_path)])
    assert exported.exit_code == 0, exported.output
    assert exported.stderr.startswith("warning: wind: the mean is more than 10,000 times the st")


def test_prints_the_provenance_of_each_argument(tmp_path: Path) -> None:
    file = published.save(tmp_path, published.make("transformer"), LAYOUT)
    data = published.write_csv(tmp_path)
    options = ["--from", "tslib", "--arch", "transformer", "--data", str(data)]
    result = CliRunner().invoke(
        command,
        [str(file), *options, "--out", str(tmp_path / "out"), *arguments("transformer")],
    )
    assert result.exit_code == 0, result.output
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in result.stdout.splitlines()
        if line.startswith("│")
    ]
    assert ["seq_len", "24", "--set"] in rows
    assert ["d_model", "8", "the file"] in rows
    assert ["calendar", "hour, day_of_week, day_of_month, day_of_year", "the file"] in rows
    assert ["channels", "load, wind, OT", "train.csv"] in rows
    assert ["scaler", "rows 0 to 140", "train.csv"] in rows
    assert (tmp_path / "out" / "config.json").is_file()


def test_neither_out_nor_repository(tmp_path: Path) -> None:
    file = published.save(tmp_path, published.make("transformer"), LAYOUT)
    for options in ([], ["--repository", str(tmp_path / "repository")]):
        result = CliRunner().invoke(
            command, [str(file), "--from", "tslib", "--arch", "transformer", *options]
        )
        assert result.exit_code == 2
        assert "give --out CHECKPOINT, or --repository FOLDER with --name NAME" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "../x"], "model name '../x'"),
        (["--mean", "1,2,3"], "--mean and --std belong together"),
        (["--channels", "load,wind"], "2 channels (load, wind), but the model has 3; name them"),
        (["--set=seq_len"], "--set seq_len: expected NAME=VALUE, as in seq_len=96"),
        (["--set=colour=red"], "--set colour: unknown argument"),
        (["--set=seq_len=many"], "seq_len 'many' (--set): Input should be a valid integer"),
        (["--set=d_model=16"], "d_model is 16 by --set, 8 by the file"),
        (["--model-version", "3x"], "version '3x': expected a whole number"),
        (["--bounds", "lod=0:"], "bounds: no channel 'lod' is forecast; did you mean 'load'?"),
    ],
)
def test_bad_options(tmp_path: Path, options: list[str], message: str) -> None:
    file = published.save(tmp_path, published.make("transformer"), LAYOUT)
    result = run(tmp_path, file, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "repository").exists()


def test_a_factor_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    form = published.keys("autoformer")
    file = published.save(tmp_path, published.make("autoformer"), form)
    result = run(tmp_path, file, "--set=factor=inf", "--arch", "autoformer", form="autoformer")
    assert result.exit_code == 2
    assert "factor" in result.stderr
    assert "finite" in result.stderr


def test_no_bundle_without_the_checkpoint(tmp_path: Path) -> None:
    file = published.save(tmp_path, published.make("transformer"), LAYOUT)
    (tmp_path / "file").touch()
    result = run(tmp_path, file, "--out", str(tmp_path / "file" / "out"))
    assert (result.exit_code, result.stderr.endswith("Not a directory\n")) == (2, True)
    assert not (tmp_path / "repository").exists()


def test_existing_checkpoint_is_kept(tmp_path: Path) -> None:
    file = small(tmp_path)
    (tmp_path / "out").mkdir()
    result = run(tmp_path, file, form="patchtst")
    assert result.exit_code == 2
    assert "out: exists already; --overwrite replaces it" in result.stderr
    again = run(tmp_path, file, "--overwrite", "--model-version", "7", form="patchtst")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "repository" / "out" / "7").is_dir()


def test_arguments_are_listed() -> None:
    text = CliRunner().invoke(settings, ["import"]).stdout
    own = [name for options in FOLDERS.values() for name in options]
    assert all(f"│ {name} " in text for name in ("seq_len", "marks", *own))
    assert "│ model " not in text
