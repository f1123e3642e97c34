"""The pages in docs/start/ lead from a checkpoint and from a CSV to an answer of `/forecast`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.docs.pages import blocks
from tests.docs.reader import Reader
from tests.importers import published
from tests.support.process import ROOT, Server

_SETTING = (
    "long_term_forecast_ETTh1_96_48_Autoformer_ETTh1_ftM_sl96_ll48_pl48_dm8_nh2_el2_dl1_df12_"
    "expand2_dc4_fc1_ebtimeF_dtTrue_Dev_0"
)
_ETTH1 = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")


def write_checkpoint(folder: Path) -> None:
    """An Autoformer of the Time-Series-Library, and rows in place of ETTh1."""
    changes = {"channels": 7, "context": 96, "horizon": 48, "label": 48, "moving_average": 25}
    model = published.make("autoformer", **changes, attention={"mechanism": "autocorrelation"})
    checkpoints = folder / "checkpoints" / _SETTING
    checkpoints.mkdir(parents=True)
    published.save(checkpoints, model, published.keys("autoformer"))
    random, rows = np.random.default_rng(0), 14_400
    table = pd.DataFrame({name: random.normal(10, 5, rows).round(3) for name in _ETTH1})
    table.insert(0, "date", pd.date_range("2016-07-01", periods=rows, freq="h"))
    table.to_csv(folder / "ETTh1.csv", index=False)


def write_table(folder: Path) -> None:
    """Two thousand hours of a daily pattern."""
    hours, random = np.arange(2000), np.random.default_rng(0)
    waves = {"load": (100, 20, 3), "temperature": (10, 5, 1)}
    table = {
        name: (mean + size * np.sin(hours * np.pi / 12) + random.normal(0, noise, 2000)).round(2)
        for name, (mean, size, noise) in waves.items()
    }
    times = pd.date_range("2024-01-01", periods=2000, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    pd.DataFrame({"time": times, **table}).to_csv(folder / "load.csv", index=False)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(shutil.which, ("curl", "jq"))), reason="needs curl and jq")
@pytest.mark.parametrize(("page", "prepare"), [("tslib", write_checkpoint), ("csv", write_table)])
def test_from_a_file_to_an_answer(page: str, prepare, tmp_path: Path) -> None:
    prepare(tmp_path)
    found = list(blocks(ROOT / "docs" / "start" / f"{page}.md"))
    serve = next(at for at, block in enumerate(found) if "foretell serve" in block.text)
    assert shlex.split(found[serve].text) == ["foretell", "serve", "--models", "models"]
    Reader(tmp_path, "http://localhost:8000").run(found[:serve])
    with Server(tmp_path / "models", tmp_path / "server.log") as server:
        Reader(tmp_path, server.url).run(found[serve + 1 :])
