"""Unknown architectures and mechanisms are served by the form of their maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.attention import select
from foretell.service.forecast.requests import AttentionOptions
from tests.service.client import Client
from tests.support.bundles import (
    Spec,
    channel_stage,
    cluster_stage,
    lag_stage,
    mapless_stage,
    write_bundle,
)

STAGES = (channel_stage(3), cluster_stage(), mapless_stage(), lag_stage(name="lags.3"))
SPEC = Spec(
    name="tomorrow",
    channels=("a", "b", "c"),
    stages=STAGES,
    changes={"architecture": "timemixer", "devices": ("cpu",)},
)
HISTORY = np.random.default_rng(0).normal(1, 0.3, (8, 3)).astype(np.float32)
ROUTED = HISTORY.mean(axis=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("tomorrow")
    write_bundle(folder, SPEC)
    write_bundle(folder, Spec(name="mapless", stages=(mapless_stage(),)))
    with Client(folder) as client:
        yield client


def attention(client: Client, **options: Any) -> Any:
    inputs = [{"series": HISTORY.tolist()}]
    body = {"model": "tomorrow", "inputs": inputs, "options": {"attention": options or True}}
    answer = client.forecast(body).json()
    described = ForecastResponse.model_validate(answer).model_dump(exclude_unset=True)
    stages, described_stages = (
        each["outputs"][0]["content"][0]["attention"] for each in (answer, described)
    )
    assert [set(stage) for stage in stages] == [set(stage) for stage in described_stages]
    return stages


def by_channel() -> np.ndarray:
    """The expected dense map."""
    means = HISTORY.mean(axis=0)
    exponentials = np.exp(np.multiply.outer([1, 2], np.multiply.outer(means, means)))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_maps_have_their_forms(server: Client) -> None:
    mixing, routing, lags = attention(server)
    assert (mixing["kind"], mixing["form"]) == ("causal-mean", "dense")
    assert (mixing["axes"], mixing["shape"]) == (["head", "query", "key"], [2, 3, 3])
    assert mixing["query"] == mixing["key"] == ["a", "b", "c"]
    np.testing.assert_allclose(mixing["weights"], by_channel(), rtol=1e-4)
    assert (routing["kind"], routing["form"]) == ("router", "sparse")
    assert (routing["axes"], routing["shape"]) == (["head", "query", "kept"], [2, 8, 2])
    assert (routing["query"], routing["key"]) == (list(range(-8, 0)), [0, 1, 2, 3])
    assert np.shape(routing["keys"]) == np.shape(routing["weights"]) == (2, 8, 2)
    assert routing["heads"] == [0, 1]
    assert routing["keys"] == [[[2, 1]] * 8, [[0, -1]] * 8]
    np.testing.assert_allclose(
        np.array(routing["weights"])[0, :, 0], 1 / (1 + np.exp(-ROUTED)), rtol=1e-4
    )
    assert (lags["kind"], lags["form"], lags["shape"]) == ("autocorrelation", "circulant", [8, 8])


def test_stage_without_a_map_is_answered_if_requested(server: Client) -> None:
    (state,) = attention(server, stages=["state.2"])
    assert state == {"name": "state.2", "kind": "selective-scan", "form": "none"}
    named = attention(server, stages=["mixing.0", "state.2"], layers=[0, 2])
    assert [stage["name"] for stage in named] == ["mixing.0", "state.2"]
    body = {"model": "mapless", "inputs": [{"series": [1.0] * 8}]}
    error = server.error(body | {"options": {"attention": True}})
    assert (error["param"], error["type"]) == ("options.attention", "not_supported")
    assert error["message"] == "mapless has no attention maps"
    (state,) = server.first(body | {"options": {"attention": {"stages": ["state.2"]}}})["attention"]
    assert state["form"] == "none"


def test_card_metadata_and_document_list_the_maps(server: Client) -> None:
    card = next(each for each in server.get("/models").json() if each["name"] == "tomorrow")
    assert card["architecture"] == "timemixer"
    assert card["attention"] == [stage.name for stage in STAGES]
    assert 'architecture="timemixer"' in server.get("/metrics").text
    outputs = server.get("/v2/models/tomorrow").json()["outputs"]
    assert [(each["name"], each["datatype"], each["shape"]) for each in outputs[1:]] == [
        ("mixing.0.weights", "FP32", [-1, 2, 3, 3]),
        ("routing.1.keys", "INT64", [-1, 2, 8, 2]),
        ("routing.1.weights", "FP32", [-1, 2, 8, 2]),
        ("routing.1.scores", "FP32", [-1, 2, 8, 4]),
        ("lags.3.lags", "INT64", [-1, -1]),
        ("lags.3.lag_weights", "FP32", [-1, -1]),
        ("lags.3.correlation", "FP32", [-1, -1]),
    ]
    described = server.get("/openapi.json").json()["components"]["schemas"]["Attention"]
    assert described["properties"]["kind"]["type"] == "string"
    assert described["properties"]["form"]["enum"] == ["dense", "circulant", "sparse", "none"]
    assert described["required"] == ["name", "kind", "form"]


def test_maps_as_tensors(server: Client) -> None:
    body = {
        "inputs": [
            {
                "name": "history",
                "datatype": "FP32",
                "shape": [1, 8, 3],
                "data": HISTORY.ravel().tolist(),
            }
        ],
        "outputs": [{"name": "routing.1.keys"}, {"name": "mixing.0.weights"}],
    }
    keys, weights = server.request("POST", "/v2/models/tomorrow/infer", json=body).json()["outputs"]
    assert (keys["datatype"], keys["shape"]) == ("INT64", [1, 2, 8, 2])
    np.testing.assert_allclose(np.reshape(weights["data"], (2, 3, 3)), by_channel(), rtol=1e-4)


@pytest.mark.parametrize(("heads", "values"), [("all", 64), ([0], 32), ("mean", 32)])
def test_size_of_an_answer_counts_keys(server: Client, heads: object, values: int) -> None:
    given = {"stages": ["routing.1", "state.2"], "heads": heads}
    manifest = server.repository.registry.find("tomorrow").manifest
    selection = select(AttentionOptions.model_validate(given), manifest, "a")
    assert selection.values(channels=3) == values
