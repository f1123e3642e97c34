from __future__ import annotations

import numpy as np
import pytest

from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import AttentionStage, Axis, Manifest
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.requests.attention import circulant, describe, duration, labels, select
from foretell.service.requests.schemas import AttentionOptions
from foretell.service.times.timeline import timeline_from
from tests.service.bundles import lag_stage, softmax_stage

STAGES = (
    softmax_stage(),
    lag_stage(),
    softmax_stage(name="decoder.0.cross", per_channel=True),
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
def test_selects(options: dict[str, object], chosen: list[str]) -> None:
    selection = select(AttentionOptions.model_validate(options), MANIFEST, "a")
    assert [stage.name for stage in selection.stages] == chosen


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
        ({"heads": [1, 0, 1]}, "a.heads", "asked for twice"),
        ({"heads": ["x"], "layers": [1]}, "a.heads[0]", "a head by its number from 0, got"),
    ],
)
def test_names_what_is_not_there(options: dict[str, object], param: str, message: str) -> None:
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


def test_a_model_without_attention() -> None:
    with pytest.raises(NotSupportedError):
        select(AttentionOptions(), Manifest.model_construct(name="m", attention=()), "a")


@pytest.mark.parametrize(
    ("heads", "values"),
    [("all", 18 + 64 + 36), ("mean", 9 + 64 + 18), ([1], 9 + 64 + 18), ([1, 0], 18 + 64 + 36)],
)
def test_counts_the_weights_of_an_answer(heads: object, values: int) -> None:
    options = AttentionOptions.model_validate({"heads": heads})
    assert select(options, MANIFEST, "a").values(channels=2) == values


def test_the_circulant_map() -> None:
    weights = circulant(np.array([1, 3]), np.array([0.75, 0.25], np.float32), 4)
    expected = [[0, 0.75, 0, 0.25], [0.25, 0, 0.75, 0], [0, 0.25, 0, 0.75], [0.75, 0, 0.25, 0]]
    np.testing.assert_array_equal(weights, expected)
    # A lag of a full period is no lag; both count.
    both = circulant(np.array([0, 2]), np.array([0.5, 0.5], np.float32), 2)
    np.testing.assert_array_equal(both, np.eye(2))


def test_labels_of_steps() -> None:
    assert labels(Axis(length=5, start=-2, padding=1), None) == [-2, -1, 0, 1, None]
    timeline = timeline_from("2024-01-01", None, Frequency.parse("D"), 3, "i")
    assert labels(Axis(length=3, start=-1), timeline) == [
        "2024-01-03T00:00:00",
        "2024-01-04T00:00:00",
        "2024-01-05T00:00:00",
    ]


def test_labels_of_patches() -> None:
    axis = Axis(length=3, start=-8, stride=2, width=4)
    assert labels(axis, None) == [
        {"start": -8, "end": -5},
        {"start": -6, "end": -3},
        {"start": -4, "end": -1},
    ]
    timeline = timeline_from("2024-01-01T00:00Z", None, Frequency.parse("h"), 8, "i")
    assert labels(axis, timeline)[-1] == {
        "start": "2024-01-01T04:00:00+00:00",
        "end": "2024-01-01T07:00:00+00:00",
    }


@pytest.mark.parametrize(
    ("patch", "stride", "patches", "last"),
    [
        (4, 2, 4, {"start": -2, "end": -1}),
        (2, 3, 4, {"start": -1, "end": -1}),
        (2, 4, 3, {"start": -1, "end": -1}),
        (1, 1, 9, -1),
    ],
)
def test_labels_of_a_padded_history_end_with_it(
    patch: int, stride: int, patches: int, last: object
) -> None:
    axis = Axis(length=patches, start=-8, stride=stride, width=patch, end=0)
    assert labels(axis, None)[-1] == last


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
    ],
)
def test_durations(frequency: str, text: str | None) -> None:
    assert duration(3, Frequency.parse(frequency)) == text


def test_stages_of_a_name_without_a_number_are_layer_0() -> None:
    step = Axis(length=2, start=-2)
    stage = AttentionStage(name="only", kind="softmax", heads=1, query=step, key=step)
    manifest = Manifest.model_construct(name="m", attention=(stage,))
    assert select(AttentionOptions(layers=[0]), manifest, "a").stages == (stage,)
