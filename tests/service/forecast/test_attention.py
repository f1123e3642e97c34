from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretell.bundle.attention import Axis, stage
from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.attention import (
    Selection,
    circulant,
    describe,
    duration,
    labels,
    select,
)
from foretell.service.forecast.requests import AttentionOptions
from foretell.service.forecast.times import Timeline, timeline_from
from foretell.timeaxis.frequency import Frequency
from tests.service.client import Client
from tests.service.forecast.bodies import EIGHT, PAIRS, body
from tests.support.bundles import lag_stage, softmax_stage

STAGES = (
    softmax_stage(),
    lag_stage(),
    softmax_stage(name="decoder.0.cross", channels=2),
)
NAMES = [stage.name for stage in STAGES]
MANIFEST = Manifest.model_construct(name="m", attention=STAGES)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, NAMES),
        ({"layers": [0]}, ["encoder.0.self", "decoder.0.cross"]),
        ({"stages": ["encoder.1.self"]}, ["encoder.1.self"]),
        ({"stages": NAMES[::-1], "layers": [1]}, ["encoder.1.self"]),
    ],
)
def test_options_select_stages(options: dict[str, object], chosen: list[str]) -> None:
    selection = select(AttentionOptions.model_validate(options), MANIFEST, "a")
    assert [stage.name for stage in selection.stages] == chosen
    # A stage whose name has no number is in layer 0.
    step = Axis(length=2, start=-2)
    only = Manifest.model_construct(
        name="m", attention=(stage("only", "softmax", "dense", 1, step, step),)
    )
    assert select(AttentionOptions(layers=[0]), only, "a").stages == only.attention


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"stages": ["x"]}, "a.stages[0]", "expected one of encoder.0.self, .* got 'x'"),
        ({"layers": [0, 7]}, "a.layers[1]", "expected one of the layers 0, 1"),
        ({"layers": [0], "stages": ["encoder.1.self"]}, "a", "select nothing"),
        ({"stages": []}, "a", "select nothing"),
        ({"heads": "none"}, "a.heads", "expected 'all', 'mean' or a list .* got the string 'none'"),
        ({"heads": []}, "a.heads", "a list of head numbers, got a list of 0"),
        ({"heads": [0, 2]}, "a.heads[1]", "from 0, of which every selected stage has 2, got 2"),
        ({"heads": [-1]}, "a.heads[0]", "got -1"),
        ({"heads": [True]}, "a.heads[0]", "got true"),
        ({"heads": [0.0]}, "a.heads[0]", "got 0.0"),
        ({"heads": [1, 0, 1]}, "a.heads", "given twice"),
        ({"heads": ["x"], "layers": [1]}, "a.heads[0]", "a head by its number from 0, got"),
    ],
)
def test_unknown_selection_is_refused(options: dict[str, object], param: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        select(AttentionOptions.model_validate(options), MANIFEST, "a")
    assert error.value.param == param


def test_some_heads_in_any_order() -> None:
    options = AttentionOptions.model_validate({"heads": [1, 0], "stages": NAMES[:2]})
    selection = select(options, MANIFEST, "a")
    manifest = Manifest.model_construct(name="m", channels=("x",), frequency="h")
    weights = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    outputs = {
        "encoder.0.self.weights": weights,
        "encoder.1.self.lags": np.array([1, 3]),
        "encoder.1.self.lag_weights": np.array([0.75, 0.25], np.float32),
        "encoder.1.self.correlation": np.zeros(8, np.float32),
    }
    softmax, lags = describe(selection, outputs, None, manifest, None)
    assert softmax["heads"] == [1, 0]
    assert softmax["axes"] == ["head", "query", "key"]
    np.testing.assert_array_equal(softmax["weights"], weights[::-1])
    assert "heads" not in lags
    assert lags["lag_durations"] == ["PT1H", "PT3H"]


def test_channels_in_the_order_of_the_request() -> None:
    options = AttentionOptions.model_validate({"stages": NAMES[2:], "heads": "mean"})
    selection = select(options, MANIFEST, "a")
    manifest = Manifest.model_construct(name="m", channels=("load", "wind"), frequency="h")
    weights = np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)
    outputs = {"decoder.0.cross.weights": weights}
    (answer,) = describe(selection, outputs, None, manifest, [1, 0])
    assert (answer["channels"], answer["axes"]) == (["wind", "load"], ["channel", "query", "key"])
    np.testing.assert_array_equal(answer["weights"], weights.mean(axis=1)[::-1])
    (answer,) = describe(selection, outputs, None, manifest, None)
    assert answer["channels"] == ["load", "wind"]
    np.testing.assert_array_equal(answer["weights"], weights.mean(axis=1))


@pytest.mark.parametrize("padding", [0, 1])
def test_axes_of_channels_in_the_order_of_the_request(padding: int) -> None:
    axis = Axis(of="channels", length=3 + padding, padding=padding)
    size = axis.length
    stages = (
        stage("dense", "x", "dense", 1, axis, axis),
        stage("sparse", "x", "sparse", 1, axis, axis, kept=2),
    )
    weights = np.arange(size * size, dtype=np.float32).reshape(1, size, size)
    keys = np.array([[[0, 2], [1, -1], [2, size + 1], [-7, 0]]])[:, :size]
    kept = np.arange(2 * size, dtype=np.float32).reshape(1, size, 2)
    outputs = {"dense.weights": weights, "sparse.keys": keys, "sparse.weights": kept}
    manifest = Manifest.model_construct(channels=("a", "b", "c"), attention=stages)
    # The request has c, a, b: its column 0 is channel 2.
    dense, sparse = describe(Selection(stages, "all"), outputs, None, manifest, [2, 0, 1])
    order = [2, 0, 1, 3][:size]
    names = ["c", "a", "b", None][:size]
    assert dense["query"] == dense["key"] == sparse["query"] == sparse["key"] == names
    np.testing.assert_array_equal(dense["weights"], weights[:, order][..., order])
    np.testing.assert_array_equal(sparse["weights"], kept[:, order])
    # The request's column of every number, also of absent keys.
    place = {0: 1, 1: 2, 2: 0}
    expected = [[place.get(int(key), -1) for key in row] for row in keys[0]]
    np.testing.assert_array_equal(sparse["keys"][0], np.array(expected)[order])
    (mean,) = describe(Selection(stages[1:], "mean"), outputs, None, manifest, [2, 0, 1])
    full = np.zeros((size, size))
    for row, (own, amounts) in enumerate(zip(keys[0], kept[0], strict=True)):
        for key, amount in zip(own, amounts, strict=True):
            if 0 <= key < size:
                full[row, key] += amount
    np.testing.assert_array_equal(mean["weights"], full[order][:, order])
    assert (mean["form"], mean["axes"]) == ("dense", ["query", "key"])


def test_some_channels_in_the_order_of_the_request() -> None:
    read = Axis(of="channels", length=3, padding=1, places=(1, 3))
    step = Axis(length=1, start=-1)
    stages = (
        stage("own", "x", "dense", 1, step, step, channels=2, places=(0, 2)),
        stage("cross", "x", "sparse", 1, Axis(of="landmarks", length=2), read, kept=2),
    )
    outputs = {
        "own.weights": np.array([1, 2], np.float32).reshape(2, 1, 1, 1),
        "cross.keys": np.array([[[0, 2], [1, -1]]]),
        "cross.weights": np.ones((1, 2, 2), np.float32),
    }
    manifest = Manifest.model_construct(channels=("a", "b", "c", "d"), attention=stages)
    own, cross = describe(Selection(stages, "all"), outputs, None, manifest, [3, 2, 1, 0])
    assert (own["channels"], own["weights"].ravel().tolist()) == (["c", "a"], [2, 1])
    assert cross["key"] == ["d", "b", None]
    assert cross["keys"].tolist() == [[[1, 2], [0, -1]]]


def test_a_sparse_map_of_each_channel() -> None:
    rows, keys = Axis(of="landmarks", length=2), Axis(of="clusters", length=3)
    own = stage("s", "x", "sparse", 2, rows, keys, kept=1, channels=2)
    manifest = Manifest.model_construct(channels=("a", "b"), attention=(own,))
    outputs = {
        "s.keys": np.array([[[[0], [1]], [[2], [-1]]], [[[1], [1]], [[1], [0]]]]),
        "s.weights": np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2, 1),
    }
    (described,) = describe(Selection((own,), (1,)), outputs, None, manifest, [1, 0])
    assert (described["channels"], described["heads"]) == (["b", "a"], [1])
    assert described["axes"] == ["channel", "head", "query", "kept"]
    assert (described["query"], described["key"]) == ([0, 1], [0, 1, 2])
    assert described["keys"].tolist() == [[[[1], [0]]], [[[2], [-1]]]]
    assert described["weights"].tolist() == [[[[7], [8]]], [[[3], [4]]]]
    (mean,) = describe(Selection((own,), "mean"), outputs, None, manifest, [1, 0])
    assert (mean["channels"], mean["axes"]) == (["b", "a"], ["channel", "query", "key"])
    # Both heads of the second channel's first row have the same key.
    assert mean["weights"].tolist() == [[[0, 6, 0], [4, 3, 0]], [[0.5, 0, 1.5], [0, 1, 0]]]


def test_lags_of_patches() -> None:
    patches = Axis(of="patches", length=4, start=-8, stride=2, width=2)
    own = stage("a", "x", "circulant", 1, patches, patches)
    manifest = Manifest.model_construct(channels=("x",), frequency="h", attention=(own,))
    outputs = {
        "a.lags": np.array([3]),
        "a.lag_weights": np.ones(1, np.float32),
        "a.correlation": np.zeros(4, np.float32),
    }
    (described,) = describe(Selection((own,), "all"), outputs, None, manifest, None)
    assert (described["lags"].tolist(), described["lag_durations"]) == ([3], ["PT6H"])
    assert described["weights"][0].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("heads", "values"),
    [("all", 18 + 64 + 36), ("mean", 9 + 64 + 18), ([1], 9 + 64 + 18), ([1, 0], 18 + 64 + 36)],
)
def test_selection_counts_its_weights(heads: object, values: int) -> None:
    options = AttentionOptions.model_validate({"heads": heads})
    assert select(options, MANIFEST, "a").values(channels=2) == values


def test_the_circulant_map() -> None:
    weights = circulant(np.array([1, 3]), np.array([0.75, 0.25], np.float32), 4)
    expected = [[0, 0.75, 0, 0.25], [0.25, 0, 0.75, 0], [0, 0.25, 0, 0.75], [0.75, 0, 0.25, 0]]
    np.testing.assert_array_equal(weights, expected)
    # A lag of a full period is no lag; both count.
    both = circulant(np.array([0, 2]), np.array([0.5, 0.5], np.float32), 2)
    np.testing.assert_array_equal(both, np.eye(2))


DAYS = timeline_from("2024-01-01", None, Frequency.parse("D"), 3, "i")
HOURS = timeline_from("2024-01-01T00:00Z", None, Frequency.parse("h"), 8, "i")
PATCHES = Axis(of="patches", length=3, start=-8, stride=2, width=4)


def padded(length: int, stride: int, width: int) -> Axis:
    """Patches of a history whose end is padded."""
    return Axis(of="patches", length=length, start=-8, stride=stride, width=width, end=0)


@pytest.mark.parametrize(
    ("axis", "timeline", "expected"),
    [
        (Axis(of="channels", length=3, padding=1), None, ["wind", "load", None]),
        (Axis(of="clusters", length=2), None, [0, 1]),
        (Axis(of="landmarks", length=3, padding=1), None, [0, 1, None]),
        (Axis(length=5, start=-2, padding=1), None, [-2, -1, 0, 1, None]),
        (
            Axis(length=3, start=-1),
            *(DAYS, [f"2024-01-0{day}T00:00:00" for day in (3, 4, 5)]),
        ),
        (PATCHES, None, [{"start": start, "end": start + 3} for start in (-8, -6, -4)]),
        (
            PATCHES,
            HOURS,
            [
                {
                    "start": f"2024-01-01T0{start}:00:00+00:00",
                    "end": f"2024-01-01T0{end}:00:00+00:00",
                }
                for start, end in ((0, 3), (2, 5), (4, 7))
            ],
        ),
        (
            padded(4, 2, 4),
            *(None, [{"start": at, "end": min(at + 3, -1)} for at in (-8, -6, -4, -2)]),
        ),
        (padded(4, 3, 2), None, [(-8, -7), (-5, -4), (-2, -1), (-1, -1)]),
        (padded(3, 4, 2), None, [(-8, -7), (-4, -3), (-1, -1)]),
        (padded(9, 1, 1), None, [-8, -7, -6, -5, -4, -3, -2, -1, -1]),
    ],
)
def test_labels(axis: Axis, timeline: Timeline | None, expected: list[Any]) -> None:
    named = [
        {"start": each[0], "end": each[1]} if isinstance(each, tuple) else each for each in expected
    ]
    assert labels(axis, timeline, ["wind", "load"]) == named


@pytest.mark.parametrize(
    ("frequency", "text"),
    [
        ("15min", "PT45M"),
        ("h", "PT3H"),
        ("s", "PT3S"),
        ("D", "P3D"),
        ("W", "P3W"),
        ("MS", "P3M"),
        ("2QE", "P18M"),
        ("Y", "P3Y"),
        ("B", None),
        ("SMS", None),
        ("10ms", None),
        ("BQS", "P9M"),
    ],
)
def test_durations(frequency: str, text: str | None) -> None:
    assert duration(3, Frequency.parse(frequency)) == text


@pytest.mark.parametrize("options", [{}, {"stages": ["encoder.0.self"]}, {"layers": [0]}])
def test_a_model_without_attention(options: dict[str, list[object]]) -> None:
    manifest = Manifest.model_construct(name="m", attention=())
    with pytest.raises(NotSupportedError, match="m has no attention maps"):
        select(AttentionOptions(**options), manifest, "a")


def test_attention_of_a_request(client: Client) -> None:
    request = body({"series": PAIRS, "start_timestamp": "2024-01-01"}, model="multi")
    assert "attention" not in client.first(request)
    request["options"] = {"attention": True}
    forecast = client.first(request)
    assert forecast["mean_forecast"] == [[7.0, -10.0]] * 4
    patches, lags, cross = forecast["attention"]
    assert (patches["name"], patches["kind"]) == ("encoder.0.self", "softmax")
    assert (patches["form"], lags["form"], cross["form"]) == ("dense", "circulant", "dense")
    assert (lags["kind"], cross["kind"]) == ("autocorrelation", "softmax")
    assert patches["axes"] == ["head", "query", "key"]
    assert patches["shape"] == list(np.shape(patches["weights"])) == [2, 3, 3]
    np.testing.assert_allclose(np.sum(patches["weights"], axis=-1), 1, rtol=1e-5)
    assert patches["query"][0] == {"start": "2024-01-01T00:00:00", "end": "2024-01-01T03:00:00"}
    assert cross["axes"] == ["channel", "head", "query", "key"]
    assert cross["shape"] == list(np.shape(cross["weights"])) == [2, 2, 3, 3]
    # Both channels' mean is 1 throughout, so every lag is as good as the next.
    assert lags["shape"] == [8, 8]
    assert lags["axes"] == ["query", "key"]
    assert lags["correlation"] == [1.0] * 8
    assert lags["lag_weights"] == [0.5, 0.5]
    assert lags["lag_durations"] == [f"PT{lag}H" for lag in lags["lags"]]
    for row in range(8):
        chosen = {(row + lag) % 8 for lag in lags["lags"]}
        assert {key for key, weight in enumerate(lags["weights"][row]) if weight} == chosen


def test_attention_in_part(client: Client) -> None:
    swapped = {"series": PAIRS, "channels": ["wind", "load"]}
    cross = {"stages": ["decoder.0.cross"], "heads": "mean"}
    (found,) = client.first(body(swapped, model="multi", attention=cross))["attention"]
    assert found["axes"] == ["channel", "query", "key"]
    assert found["key"] == [{"start": start, "end": start + 3} for start in (-8, -6, -4)]
    entry = {"series": [row[::-1] for row in PAIRS]}
    whole = client.first(body(entry, model="multi", attention={"heads": "mean"}, horizon=9))
    # The attention of a long horizon is that of the first pass.
    expected = np.array(whole["attention"][2]["weights"])[::-1]
    np.testing.assert_allclose(found["weights"], expected, rtol=1e-5)
    wrong = body(swapped, model="multi", attention={"heads": [2]})
    assert client.error(wrong)["param"] == "options.attention.heads[0]"


def test_attention_of_several_inputs(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2024-01-01"}
    other = {"series": [0, 1] * 4, "start_timestamp": "2024-06-01"}
    answer = client.forecast(body(entry, other, model="calendar", attention=True)).json()
    lags = [output["content"][0]["attention"][0]["lags"] for output in answer["outputs"]]
    assert sorted(lags[1]) == [0, 2]
    assert lags[0] != lags[1]
