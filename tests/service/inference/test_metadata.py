from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.service.engine.model import Model
from foretell.service.inference.wire import configuration, describe
from foretell.service.settings import Settings
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle


@pytest.mark.parametrize("name", ["repeat", "multi", "calendar", "quarter-hourly"])
def test_what_is_said_is_what_the_graph_does(client: Client, name: str) -> None:
    model = client.repository.registry.find(name)
    metadata = describe(model, ["1"])
    feeds = {
        tensor.name: np.zeros([3, *tensor.shape[1:]], np.float32) for tensor in metadata.inputs
    }
    wanted = [tensor.name for tensor in metadata.outputs]
    outputs = model.submit(feeds, attention=wanted, deadline=float("inf")).result(30)
    assert outputs.keys() == {tensor.name for tensor in metadata.outputs}
    names = {"FP32": np.float32, "INT64": np.int64}
    for tensor in metadata.outputs:
        values = outputs[tensor.name]
        assert values.dtype == names[tensor.datatype]
        assert values.ndim == len(tensor.shape)
        assert all(
            said in (-1, size) for said, size in zip(tensor.shape, values.shape, strict=True)
        )
        assert tensor.shape[0] == -1


def test_a_margin_is_an_output(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(margin_bound=0.5))
    with Client(tmp_path) as client:
        outputs = describe(client.repository.registry.find("repeat"), ["1"]).outputs
        assert [(each.name, each.shape) for each in outputs] == [
            ("forecast", [-1, 4, 1]),
            ("margin", [-1]),
        ]


def test_the_configuration(client: Client) -> None:
    model: Model = client.repository.registry.find("multi")
    settings = Settings(models=Path(), max_inputs=100)
    found = configuration(model, settings)
    assert (found["name"], found["platform"]) == ("multi", "onnxruntime_onnx")
    assert found["max_batch_size"] == 100
    assert found["dynamic_batching"]["preferred_batch_size"] == [model.max_batch]
    assert found["input"] == [{"name": "history", "data_type": "TYPE_FP32", "dims": [8, 2]}]
    assert found["output"][0] == {"name": "forecast", "data_type": "TYPE_FP32", "dims": [4, 2]}
    lags = next(each for each in found["output"] if each["name"] == "encoder.1.self.lags")
    assert (lags["data_type"], lags["dims"]) == ("TYPE_INT64", [-1])
