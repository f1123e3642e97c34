from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.backtesting.backtest import MODEL, backtest, saw
from foretell.backtesting.subject import load_subject
from foretell.bundle.errors import BundleError
from foretell.data.reading import read
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused

ROWS, CONTEXT, HORIZON = 400, 8, 4
LAST = "repeating the last value"
# It repeats the last value of the first channel, and twice that of the second one.
SPEC = Spec(name="weather", channels=("load", "wind"), context=CONTEXT, calibrated=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two channels of noise, by the hour; the second one moves ten times as much."""
    values = np.random.default_rng(5).normal(size=(ROWS, 2)) * [1, 10]
    frame = pd.DataFrame(values, columns=["load", "wind"])
    frame.insert(0, "date", pd.date_range("2024-01-01", periods=ROWS, freq="h"))
    path = tmp_path / "weather.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", SPEC)


@pytest.mark.parametrize("stride", [1, 7])
def test_errors_of_every_origin_by_channel_and_step(file: Path, bundle: Path, stride: int) -> None:
    subject = load_subject(bundle)
    panel = read(file)
    found = backtest(subject, panel, share=0.25, stride=stride)
    values = panel.tables[0].values
    # The first target is the first of the last 100 rows.
    origins = np.arange(ROWS - 100, ROWS - HORIZON + 1, stride)
    assert found.origins == len(origins)
    targets = np.stack([values[origin:][:HORIZON] for origin in origins])
    last = values[origins - 1][:, None]
    for name, forecast in ((MODEL, last * [1, 2]), (LAST, last)):
        error = (forecast - targets) / 2
        np.testing.assert_allclose(found.scores[name].mse, (error**2).mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.scores[name].mae, abs(error).mean(axis=0), rtol=1e-5)
    histories = np.stack([values[origin - CONTEXT : origin] for origin in origins])
    spread = histories.std(axis=1)[:, None]
    for level, held in found.held.items():
        reach = level / 2 * np.arange(1, HORIZON + 1)[:, None] * spread
        inside = abs(targets - last * [1, 2]) <= reach
        np.testing.assert_allclose(held.share, inside.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(held.width, (2 * reach / 2).mean(axis=0), rtol=1e-5)
    assert list(found.held) == [0.8, 0.95]
    times = panel.tables[0].timestamps
    assert (found.first, found.last) == (times[ROWS - 100], times[-1])


def test_the_linear_baseline_is_trained_on_the_rows_before_the_first_origin(
    file: Path, bundle: Path, tmp_path: Path
) -> None:
    subject = load_subject(bundle)
    panel = read(file)
    whole = backtest(subject, panel, share=0.25, stride=1)
    # DLinear learns the mean of the noise, which is better than a repeated value.
    assert whole.scores["DLinear"].mse.mean() < 0.75 * whole.scores[LAST].mse.mean()
    changed = pd.read_csv(file)
    changed.loc[ROWS - 100 :, ["load", "wind"]] *= 1000
    changed.to_csv(tmp_path / "changed.csv", index=False)
    other = read(tmp_path / "changed.csv")
    again = backtest(subject, other, share=0.25, stride=1000)
    once = backtest(subject, panel, share=0.25, stride=1000)
    # Only the target of the one origin differs.
    error = again.scores["DLinear"].mae - once.scores["DLinear"].mae
    future = panel.tables[0].values[ROWS - 100 :][:HORIZON]
    assert np.all(error > 0)
    assert np.all(error <= 1.01 * 999 * abs(future) / 2)


def test_linear_baseline_does_not_use_later_rows_of_another_series(
    file: Path, bundle: Path, tmp_path: Path
) -> None:
    """The second series begins five days later, so some of its training rows are later than test
    rows."""
    subject = load_subject(bundle)
    frame = pd.read_csv(file, parse_dates=["date"])
    origin = frame["date"][ROWS - 100]
    shifted = frame.assign(date=frame["date"] + pd.Timedelta(days=5), unique_id="later")
    found = []
    for factor in (1, 1000):
        shifted.loc[shifted["date"] >= origin, ["load", "wind"]] *= factor
        both = tmp_path / f"{factor}.csv"
        pd.concat([frame.assign(unique_id="early"), shifted]).to_csv(both, index=False)
        # The only forecast is that of the first origin of the first series.
        found.append(backtest(subject, read(both), share=0.25, stride=1000))
    one, two = (each.scores["DLinear"].mae for each in found)
    np.testing.assert_array_equal(one, two)


def test_prints_a_table_and_writes_numbers_and_a_picture(
    file: Path, bundle: Path, tmp_path: Path
) -> None:
    files = [f"--out={tmp_path / 'errors.csv'}", f"--plot={tmp_path / 'errors.png'}"]
    output = done("backtest", file, f"--model={bundle.parent}", *files).stdout
    for text in ("weather@1: 77 origins", "load", "wind", "all", "DLinear", "80% held / width"):
        assert text in output
    assert "weather@1: no better than repeating the last value (MSE " in output
    assert "than DLinear (MSE" in output
    assert "repeating the last day" not in output
    numbers = pd.read_csv(tmp_path / "errors.csv")
    assert len(numbers) == 2 * 3 * HORIZON
    assert set(numbers["forecaster"]) == {MODEL, LAST, "DLinear"}
    is_model = numbers["forecaster"] == MODEL
    assert numbers.loc[is_model, "held_80%"].between(0, 1).all()
    assert numbers.loc[~is_model, "held_80%"].isna().all()
    assert set(numbers["unit"]) == {2.0}
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_warns_of_rows_in_the_training_split(file: Path, tmp_path: Path) -> None:
    config = CONFIGS["transformer"].model_copy(update={"channels": 2})
    folder = checkpoint_of(config, file, tmp_path / "trained")
    subject = load_subject(folder)
    panel = read(file)
    assert not saw(subject, panel, 0.2)
    assert saw(subject, panel, 0.3)
    result = done("backtest", file, f"--model={folder}", "--share=0.3", "--stride=40")
    assert "trained was trained on some of these rows" in result.stderr
    assert "repeating the last day" in result.stdout
    assert "held" not in result.stdout
    copy = tmp_path / "copy.csv"
    copy.write_text(file.read_text() + "\n")
    other = read(copy)
    assert not saw(subject, other, 0.3)


def test_series_that_are_too_short_are_named(file: Path, bundle: Path) -> None:
    frame = pd.read_csv(file).assign(unique_id="long")
    short = frame.head(12).assign(unique_id="short")
    pd.concat([frame, short]).to_csv(file, index=False)
    result = done("backtest", file, f"--model={bundle}", "--stride=40")
    assert "warning: too short for a backtest: 1 series: short" in result.stderr


@pytest.mark.parametrize(
    ("rows", "channel", "option", "message"),
    [
        (12, "wind", "--stride=1", "no window of context 8 and horizon 4"),
        (ROWS, "sun", "--stride=1", "no column 'wind'"),
        (ROWS, "wind", "--plot=errors.xyz", "foretell backtest: errors.xyz: "),
        (ROWS, "wind", "--plot=no/e.png", "foretell backtest: no/e.png: "),
        (ROWS, "wind", "--out=no/e.csv", "foretell backtest: no/e.csv: "),
    ],
)
def test_files_that_do_not_fit_are_refused(
    file: Path, bundle: Path, rows: int, channel: str, option: str, message: str
) -> None:
    frame = pd.read_csv(file).rename(columns={"wind": channel}).head(rows)
    frame.to_csv(file, index=False)
    assert message in refused("backtest", file, f"--model={bundle}", option)


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"neither a bundle \(manifest\.json\) nor a checkpoint"):
        load_subject(tmp_path)
