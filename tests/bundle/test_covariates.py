from typing import Any

import pytest
from pydantic import ValidationError

from foretell.bundle.covariates import Covariate, Covariates, features_of
from foretell.bundle.manifest import Manifest
from tests.bundle.test_manifest import FIELDS

WEATHER = Covariate(name="weather", type="category", categories=("clear", "rain", "snow"))
WITH_OTHER = WEATHER.model_copy(update={"other": True})
OPEN = Covariate(name="open", type="boolean")
PRICE = Covariate(name="price", mean=10, std=2)


@pytest.mark.parametrize(
    ("covariate", "value", "code"),
    [
        (PRICE, 12, 12.0),
        (PRICE, -0.5, -0.5),
        (OPEN, True, 1.0),
        (OPEN, 0, 0.0),
        (WEATHER, "snow", 2.0),
        (WITH_OTHER, "snow", 2.0),
        (WITH_OTHER, "hail", 3.0),
    ],
)
def test_values_have_codes(covariate: Covariate, value: object, code: float) -> None:
    assert covariate.code(value) == code


@pytest.mark.parametrize(
    ("covariate", "value", "message"),
    [
        (PRICE, "12", "expected a number, got '12'"),
        (PRICE, True, "expected a number, got True"),
        (PRICE, None, "expected a number, got None"),
        (PRICE, float("nan"), "expected a finite number of float32, got nan"),
        (PRICE, 1e39, "expected a finite number of float32"),
        (PRICE, 10**400, "expected a finite number of float32"),
        (OPEN, 2, "expected true or false, got 2"),
        (OPEN, "yes", "expected true or false, got 'yes'"),
        (WEATHER, "rian", "expected a category of the training rows, got 'rian'; did you mean"),
        (WEATHER, "hail", "there are clear, rain, snow"),
        (WEATHER, 1, "expected the name of a category, got 1"),
        (WITH_OTHER, None, "expected the name of a category, got None"),
    ],
)
def test_wrong_values_are_refused(covariate: Covariate, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        covariate.code(value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "category"}, "a category needs them"),
        ({"categories": ("a",)}, "no other type has any"),
        ({"type": "category", "categories": ("a", "a")}, "not unique"),
        ({"other": True}, "only a category has it"),
        ({"type": "boolean", "mean": 1.0}, "only a number has them"),
        ({"std": 0.0}, "greater than 0"),
    ],
)
def test_inconsistent_covariates_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Covariate.model_validate({"name": "x"} | fields)


def test_features_and_channels_of_categories() -> None:
    assert features_of((WITH_OTHER, OPEN, PRICE)) == 5
    assert WEATHER.channels == ("weather=clear", "weather=rain", "weather=snow")
    assert PRICE.channels == ("price",)


def test_shapes_are_those_of_the_kinds_in_use() -> None:
    covariates = Covariates(future=(PRICE, WEATHER), static=(OPEN,))
    assert covariates.shapes(24, 6) == {
        "history_covariates": (24, 2),
        "future_covariates": (6, 2),
        "static_covariates": (1,),
    }
    assert Covariates(past=(PRICE,)).shapes(24, 6) == {}


def test_manifest_of_format_3_has_covariates() -> None:
    covariates = Covariates(future=(PRICE,), static=(WEATHER,))
    manifest = Manifest.model_validate(FIELDS | {"format": 3, "covariates": covariates})
    assert Manifest.model_validate_json(manifest.model_dump_json()).covariates == covariates


def test_past_covariates_are_channels_that_are_not_forecast() -> None:
    channels = ["load", "sky=clear", "wind", "sky=rain"]
    sky = Covariate(name="sky", type="category", categories=("clear", "rain"))
    fields = FIELDS | {
        "format": 3,
        "channels": channels,
        "targets": ["load"],
        "scaler": {"mean": [0.0] * 4, "std": [1.0] * 4},
        "attention": [],
        "covariates": {"past": [sky]},
    }
    assert Manifest.model_validate(fields).past_covariates == (sky, Covariate(name="wind"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": 2, "covariates": {"future": [{"name": "x"}]}}, "format 2 has none"),
        ({"covariates": {"future": [{"name": "load"}]}}, "'load' is a channel, too"),
        ({"covariates": {"past": [{"name": "load"}]}}, "'load' is not a channel that is only read"),
        ({"covariates": {"past": [{"name": "x"}]}}, "'x' is not a channel that is only read"),
        ({"covariates": {"future": [{"name": "x"}], "static": [{"name": "x"}]}}, "not unique"),
    ],
)
def test_manifest_refuses_covariates_that_contradict_it(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Manifest.model_validate(FIELDS | {"format": 3} | fields)


@pytest.mark.parametrize("covariate", [PRICE, OPEN, WITH_OTHER])
def test_messages_do_not_write_out_large_values(covariate: Covariate) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value, shown in ((deep, "a list"), ({"a": deep}, "an object"), (10**5000, "an integer")):
        with pytest.raises(ValueError, match=f"got {shown}|finite"):
            covariate.code(value)
