from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.service.engine.runtime import Runtime
from foretell.service.errors import ModelFailedError
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT


def test_runs_named_arrays(runtime: Runtime, tmp_path: Path) -> None:
    spec = Spec(channels=("a", "b"))
    session = runtime.open(write_bundle(tmp_path, spec) / layout.FORECAST_GRAPH)
    history = np.arange(48, dtype=np.float32).reshape(3, 8, 2)
    outputs = session.run({"history": history})
    assert list(outputs) == ["forecast"]
    np.testing.assert_array_equal(outputs["forecast"], spec.forecast(history))


def test_knows_its_signature(runtime: Runtime, tmp_path: Path) -> None:
    spec = Spec(with_calendar=True)
    session = runtime.open(write_bundle(tmp_path, spec) / layout.FORECAST_GRAPH)
    assert session.inputs == {
        "history": (None, 8, 1),
        "history_calendar": (None, 8, 4),
        "future_calendar": (None, 4, 4),
    }
    assert session.outputs == ("forecast",)


def test_a_stopped_session_runs_no_more(
    runtime: Runtime, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = runtime.open(write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH)
    session.stop()
    with pytest.raises(ModelFailedError) as failure:
        session.run({"history": np.zeros((1, 8, 1), np.float32)})
    assert "terminate flag" in str(failure.value.__cause__)


def test_a_failing_graph(
    runtime: Runtime, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_bundle(tmp_path, Spec(fails=True))
    session = runtime.open(folder / layout.FORECAST_GRAPH)
    session.run({"history": np.zeros((1, 8, 1), np.float32)})
    with pytest.raises(ModelFailedError) as failure:
        session.run({"history": np.full((1, 8, 1), 5, np.float32)})
    assert "out of data bounds" in str(failure.value.__cause__)


# In a process of its own: sessions of other tests would hold parts of what is to be given back.
_GIVEN_BACK = """
import sys
import numpy, psutil
from pathlib import Path
from foretell.service.engine.runtime import Runtime

session = Runtime("cpu").open(Path(sys.argv[1]))
large = {"history": numpy.ones((2_000_000, 8, 1), numpy.float32)}
session.run(large)
taken = psutil.Process().memory_info().rss
session.shrink({"history": large["history"][:1]})
print(taken - psutil.Process().memory_info().rss)
assert session.run(large)["forecast"].shape == (2_000_000, 4, 1)
"""


def test_what_a_large_run_took_is_given_back(tmp_path: Path) -> None:
    graph = write_bundle(tmp_path, Spec()) / layout.FORECAST_GRAPH
    command = [sys.executable, "-c", _GIVEN_BACK, str(graph)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # At the least the forecasts, four steps of float32 for each window.
    assert int(ran.stdout) > 0.8 * 2_000_000 * 4 * 4
