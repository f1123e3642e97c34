from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from foretell.bundle.attention import AttentionStage, Axis, Form, stage

STEPS = Axis(length=6, start=-6)
PATCHES = Axis(of="patches", length=3, start=-6, stride=2, width=4, end=0)
CHANNELS = Axis(of="channels", length=2)
CLUSTERS = Axis(of="clusters", length=5)
LANDMARKS = Axis(of="landmarks", length=4)


@pytest.mark.parametrize(
    ("form", "options", "outputs", "sizes"),
    [
        ("dense", {}, {"weights": ("float32", (2, 6, 6))}, [72]),
        ("dense", {"channels": 7}, {"weights": ("float32", (7, 2, 6, 6))}, [504]),
        (
            "circulant",
            {"kept": 2, "candidates": 4},
            {
                "lags": ("int64", (2,)),
                "lag_weights": ("float32", (2,)),
                "correlation": ("float32", (4,)),
            },
            [2, 2, 4],
        ),
        (
            "circulant",
            {},
            {
                "lags": ("int64", (None,)),
                "lag_weights": ("float32", (None,)),
                "correlation": ("float32", (None,)),
            },
            [6, 6, 6],
        ),
        (
            "sparse",
            {"kept": 3},
            {"keys": ("int64", (2, 6, 3)), "weights": ("float32", (2, 6, 3))},
            [36, 36],
        ),
        (
            "sparse",
            {"channels": 7},
            {"keys": ("int64", (7, 2, 6, None)), "weights": ("float32", (7, 2, 6, None))},
            [504, 504],
        ),
        ("none", {}, {}, []),
    ],
)
def test_outputs_of_each_form(
    form: Form, options: dict[str, int], outputs: dict[str, object], sizes: list[int]
) -> None:
    made = stage("encoder.0", "of tomorrow", form, 2, STEPS, STEPS, **options)
    assert {each.name: (each.type, each.shape) for each in made.outputs} == {
        f"encoder.0.{name}": output for name, output in outputs.items()
    }
    assert made.evidence == made.output_names == tuple(f"encoder.0.{name}" for name in outputs)
    assert list(made.sizes.values()) == sizes
    assert made.per_channel == ("channels" in options)
    assert len(made.choices) == (form == "circulant")
    assert AttentionStage.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ({"length": 2, "padding": 2}, "padding: expected less than the length, 2"),
        ({"length": 2, "width": 2}, "width: steps have 1"),
        ({"length": 2, "start": -2, "end": -2}, "end: expected to come after the start"),
        ({"of": "patches", "length": 2, "end": -1}, "end: expected to come after the start"),
        ({"of": "channels", "length": 2, "start": -2}, "of: channels have no start"),
        ({"of": "landmarks", "length": 2, "stride": 2}, "of: landmarks have no start"),
        ({"of": "clusters", "length": 2, "width": 2}, "of: clusters have no start"),
        ({"of": "clusters", "length": 2, "end": 5}, "of: clusters have no start"),
        ({"of": "landmarks", "length": 1, "places": [0]}, "places: expected one for each channel"),
        ({"of": "channels", "length": 3, "padding": 1, "places": [0]}, "places: expected one for"),
        ({"of": "channels", "length": 2, "places": [1, 0]}, "places: expected channels in their"),
        ({"of": "channels", "length": 2, "places": [1, 1]}, "places: expected channels in their"),
    ],
)
def test_axes_that_contradict_themselves(axis: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Axis.model_validate(axis)


@pytest.mark.parametrize("axis", [STEPS, PATCHES, CHANNELS, CLUSTERS, LANDMARKS])
def test_axes_are_read_as_written(axis: Axis) -> None:
    assert Axis.model_validate_json(axis.model_dump_json()) == axis


def sparse(**changes: object) -> dict[str, Any]:
    made = stage("s", "top k", "sparse", 2, LANDMARKS, CLUSTERS, kept=3)
    return made.model_dump() | changes


def output(name: str, kind: str, *shape: int | None) -> dict[str, object]:
    return {"name": name, "type": kind, "shape": shape}


KEYS, WEIGHTS = output("s.keys", "int64", 2, 4, 3), output("s.weights", "float32", 2, 4, 3)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([KEYS], "s.weights of float32 is missing"),
        ([output("s.keys", "float32", 2, 4, 3), WEIGHTS], "s.keys of int64 is missing"),
        ([KEYS, output("s.weights", "float32", 2, 4, 2)], "the shape of s.weights is not"),
        ([KEYS, output("s.weights", "float32", 2, 4, None)], "the shape of s.weights is not"),
        ([output("s.keys", "int64", 1, 4, 3), WEIGHTS], "the shape of s.keys is not"),
        ([output("s.keys", "int64", 2, 4), WEIGHTS], r"s.keys is not \[heads, query, kept\]"),
        ([output("s.keys", "int64", 2, 4, 3, 1), WEIGHTS], "the shape of s.keys is not"),
        ([output("s.keys", "int64", None, 4, 3), WEIGHTS], "the shape of s.keys is not"),
        ([KEYS, WEIGHTS, KEYS], "names are not unique"),
        ([KEYS, WEIGHTS, output("t.scores", "float32")], r"expected names that begin with s\."),
    ],
)
def test_outputs_of_another_form_are_refused(outputs: list[object], message: str) -> None:
    AttentionStage.model_validate(sparse(outputs=[KEYS, WEIGHTS, output("s.scores", "float32")]))
    with pytest.raises(ValidationError, match=f"outputs: .*{message}"):
        AttentionStage.model_validate(sparse(outputs=outputs))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("s.keys", "s.scores"), None),
        (("s.keys", "s.nothing"), "expected outputs s.keys in int64 and s.nothing in float32"),
        (("s.scores", "s.keys"), "expected outputs s.scores in int64 and s.keys in float32"),
        (("s.keys", "s.others"), "s.keys and s.others differ in shape"),
        (("s.keys", "s.more"), "s.keys and s.more differ in shape"),
        (("s.one", "s.number"), "s.one and s.number differ in shape"),
    ],
)
def test_choices_are_of_outputs(choice: tuple[str, str], message: str | None) -> None:
    outputs = [
        KEYS,
        WEIGHTS,
        output("s.scores", "float32", 2, 4, 5),
        output("s.others", "float32", 2, 5, 5),
        output("s.more", "float32", 1, 2, 4, 5),
        output("s.one", "int64"),
        output("s.number", "float32"),
    ]
    fields = sparse(outputs=outputs, choices=[{"chosen": choice[0], "scores": choice[1]}])
    if message is None:
        assert AttentionStage.model_validate(fields).evidence == ("s.keys", "s.weights")
        return
    with pytest.raises(ValidationError, match=f"choices: {message}"):
        AttentionStage.model_validate(fields)


@pytest.mark.parametrize(
    ("form", "query", "key", "channels", "message"),
    [
        ("circulant", STEPS, Axis(length=5, start=-5), None, "key: expected steps or patches"),
        ("circulant", STEPS, Axis(length=6, stride=2), None, "key: expected steps or patches"),
        ("circulant", CLUSTERS, CLUSTERS, None, "key: expected steps or patches"),
        ("circulant", STEPS, STEPS, 2, "per_channel: this stage has one map for all channels"),
        ("dense", CHANNELS, STEPS, 2, "per_channel: this stage has one map for all channels"),
        ("dense", STEPS, STEPS, 0, "greater than or equal to 1"),
    ],
)
def test_stages_that_contradict_themselves(
    form: Form, query: Axis, key: Axis, channels: int | None, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        stage("a", "x", form, 1, query, key, channels=channels)


def test_places_are_of_channels_that_attend_by_themselves() -> None:
    own = stage("a", "x", "dense", 1, STEPS, STEPS, channels=2, places=(1, 4))
    assert own.places == (1, 4)
    with pytest.raises(ValidationError, match="places: this stage has one map for all channels"):
        stage("a", "x", "dense", 1, STEPS, STEPS, places=(1,))
    with pytest.raises(ValidationError, match="places: expected channels in their order"):
        stage("a", "x", "dense", 1, STEPS, STEPS, channels=2, places=(4, 1))


def test_a_circulant_map_of_patches() -> None:
    assert stage("a", "x", "circulant", 1, PATCHES, PATCHES).query.in_time
