"""Models that NeuralForecast has trained on returns of about 1e-4, whose graphs are made wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

from foretell.bundle import layout
from foretell.bundle.checksums import sha256
from foretell.bundle.manifest import read
from foretell.commands.verify import command
from tests.importers.neuralforecast import CONTEXT, SERIES, adopt, train

SIZE = 1e-4
# By alias the loss: values, quantiles and distributions.
LOSSES: dict[str, Any] = {
    "values": "MAE",
    "levels": ("MQLoss", {"quantiles": [0.1, 0.5, 0.9]}),
    "distributions": ("DistributionLoss", {"distribution": "StudentT"}),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a DLinear with each loss; skips where the library is absent."""
    folder = tmp_path_factory.mktemp("neuralforecast") / "saved"
    random = np.random.default_rng(0)
    returns, asked = (
        (SIZE * random.normal(size=shape)).astype(np.float32)
        for shape in ((SERIES, 60), (16, CONTEXT))
    )
    sizes = {"moving_avg_window": 5, "scaler_type": "standard"}
    models = {name: ("DLinear", sizes | {"loss": loss}) for name, loss in LOSSES.items()}
    train(models, returns, asked, folder)
    return folder


def multiplied(bundle: Path, factor: float) -> None:
    """Make both graphs forecast another multiple, and let the manifest's sums agree."""
    manifest = read(bundle)
    files = dict(manifest.files)
    for name in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH):
        graph = onnx.load(bundle / name, load_external_data=False)
        for node in graph.graph.node:
            node.output[:] = ["unscaled" if each == "forecast" else each for each in node.output]
            node.input[:] = ["unscaled" if each == "forecast" else each for each in node.input]
        wrong = numpy_helper.from_array(np.array(factor, np.float32), "factor")
        graph.graph.initializer.append(wrong)
        graph.graph.node.append(helper.make_node("Mul", ["unscaled", "factor"], ["forecast"]))
        onnx.save(graph, bundle / name)
        files[name] = sha256(bundle / name)
    changed = manifest.model_copy(update={"files": files})
    (bundle / layout.MANIFEST).write_text(changed.model_dump_json())


@pytest.mark.parametrize("name", LOSSES)
def test_a_graph_that_is_ten_percent_off_is_refused(saved: Path, name: str, tmp_path: Path) -> None:
    adopt(saved, name, tmp_path)
    (bundle,) = (tmp_path / name).iterdir()
    assert read(bundle).scaler.is_identity

    def verified() -> int:
        return CliRunner().invoke(command, [str(bundle)]).exit_code

    assert verified() == 0
    multiplied(bundle, 1.1)
    assert verified() == 1
