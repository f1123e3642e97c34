"""Covariates of a model: fitted on training rows, and codes of other rows in their order."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.scaler import Scaler
from foretell.data.coding import fit_covariates, recoded
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read_frame
from foretell.data.scaler import offset_warning
from foretell.data.splits import Span
from tests.data.panels import DAYS, read_text, text

HEADER = "id,ds,y,price,wind,sky,place"
# The last three rows of each series are not for training, and only they have snow and hail.
SKY = ("sun", "fog", "sun", "fog", "sun", "sun", "fog", "snow", "fog", "hail")
ROWS = [
    f"{name},{day},{i},{price + i},7,{SKY[i]},{place}"
    for name, price, place in (("a", 0, "hill"), ("b", 100, "lake"))
    for i, day in enumerate(DAYS)
]
TRAIN = (Span(0, 0, 7), Span(1, 0, 7))


def panel(folder: Path, kind: str = "future") -> Panel:
    kinds = {f"{kind}_covariates": "price,wind,sky", "static_covariates": "place"}
    return read_text(folder, text(*ROWS, header=HEADER), **kinds)


def test_scale_and_categories_are_those_of_the_training_rows(tmp_path: Path) -> None:
    found = fit_covariates(panel(tmp_path), TRAIN)
    prices = np.array([*range(7), *range(100, 107)])
    price, wind, sky = found.future
    assert (price.mean, price.std) == (pytest.approx(prices.mean()), pytest.approx(prices.std()))
    assert (wind.mean, wind.std) == (7, 1)
    assert sky == Covariate(name="sky", type="category", categories=("fog", "sun"))
    assert found.static[0].categories == ("hill", "lake")
    # A series without training rows has no static category.
    assert fit_covariates(panel(tmp_path), TRAIN[:1]).static[0].categories == ("hill",)
    assert fit_covariates(panel(tmp_path), TRAIN, other=True).future[2].other


def test_mean_of_zero_is_known(tmp_path: Path) -> None:
    lines = [f"{day},{i},0" for i, day in enumerate(DAYS)]
    zero = read_text(tmp_path, text(*lines, header="ds,y,promo"), future_covariates="promo")
    (promo,) = fit_covariates(zero, TRAIN[:1]).future
    read = Covariate.model_validate_json(promo.model_dump_json())
    assert (read.mean, read.std) == (0.0, 1.0)
    unknown = Covariate.model_validate_json(Covariate(name="promo").model_dump_json())
    assert (unknown.mean, unknown.std) == (None, 1.0)


def test_covariates_that_float32_rounds_are_named() -> None:
    covariates = Covariates(
        future=(Covariate(name="seconds", mean=1.7e9, std=9e4), Covariate(name="one", mean=2e9)),
        static=(Covariate(name="size", mean=-5e4, std=4), Covariate(name="age", mean=50, std=4)),
    )
    warning = offset_warning(Scaler(mean=(5.0,), std=(1.0,)), ("y",), covariates)
    assert warning is not None
    assert warning.startswith("seconds, size: the mean is more than 10,000 times")


def test_static_numbers_count_once_for_each_series() -> None:
    frame = pd.DataFrame(
        {"id": ["a"] * 8 + ["b"] * 4, "ds": [*DAYS[:8], *DAYS[:4]], "y": range(12),
         "size": [1] * 8 + [5] * 4}
    )  # fmt: skip
    whole = read_frame(frame, Reading(static_covariates=("size",)))
    (size,) = fit_covariates(whole, (Span(0, 0, 8), Span(1, 0, 4))).static
    assert (size.mean, size.std) == (3, 2)


def test_other_categories_are_refused_with_their_first_row(tmp_path: Path) -> None:
    whole = panel(tmp_path)
    with pytest.raises(DataError) as raised:
        recoded(whole, fit_covariates(whole, TRAIN))
    assert str(raised.value) == (
        "future covariate 'sky': 'snow' is no category of the training rows, first at "
        "2020-01-08T00:00:00 of series 'a'; correct it, take such rows into the training split, "
        "or train with --set unseen_categories=other"
    )
    with pytest.raises(DataError, match=r"static covariate 'place': 'lake' .* of series 'b';"):
        recoded(whole, Covariates(static=fit_covariates(whole, TRAIN[:1]).static))
    past = panel(tmp_path, "past")
    with pytest.raises(DataError, match=r"past covariate 'sky': 'hail' .* first at 2020-01-10T"):
        recoded(past, fit_covariates(past, TRAIN))


def test_others_are_the_code_after_the_last(tmp_path: Path) -> None:
    whole = panel(tmp_path)
    known = fit_covariates(whole, TRAIN, other=True)
    coded = recoded(whole, known)
    assert coded.covariates == known
    codes = coded.tables[0].covariates
    assert codes is not None
    assert codes[:, 2].tolist() == [1, 0, 1, 0, 1, 1, 0, 2, 0, 2]
    assert codes[:, 0].tolist() == [*range(10)]
    assert recoded(coded, known) is coded
    past = panel(tmp_path, "past")
    coded = recoded(past, fit_covariates(past, TRAIN, other=True))
    assert coded.channels == ("y", "price", "wind", "sky=fog", "sky=sun")
    assert coded.tables[0].values[7:, 3:].tolist() == [[0, 0], [1, 0], [0, 0]]
    assert coded.covariates is not None
    assert coded.covariates.past[2].channels == ("sky=fog", "sky=sun")


def test_codes_take_the_order_of_the_model(tmp_path: Path) -> None:
    sky = Covariate(name="sky", type="category", categories=("snow", "sun", "hail", "fog"))
    places = Covariate(name="place", type="category", categories=("sea", "lake", "hill"))
    coded = recoded(panel(tmp_path), Covariates(future=(sky,), static=(places,)))
    codes = coded.tables[1].covariates
    assert codes is not None
    assert codes[:, 0].tolist() == [1, 3, 1, 3, 1, 1, 3, 0, 3, 2]
    assert [None if one.static is None else one.static.tolist() for one in coded.tables] == [
        [2],
        [1],
    ]


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        ({"future": (Covariate(name="rain"),)}, "lacks the future covariate 'rain'; --future-cov"),
        ({"future": (Covariate(name="sky"),)}, "'sky': expected a number, and .* holds categories"),
        ({"future": (Covariate(name="price", type="boolean"),)}, "'price': expected a boolean"),
        ({"static": (Covariate(name="sky"),)}, "lacks the static covariate 'sky'"),
    ],
)
def test_other_columns_are_refused(
    tmp_path: Path, covariates: dict[str, tuple[Covariate, ...]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        recoded(panel(tmp_path), Covariates(**covariates))


def test_zero_and_one_may_be_a_truth_value() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": range(10), "x": [0, 1] * 5})
    whole = read_frame(frame, Reading(future_covariates=("x",)))
    model = Covariates(future=(Covariate(name="x", type="boolean"),))
    coded = recoded(whole, model).tables[0].covariates
    assert coded is not None
    assert coded[:, 0].tolist() == [0, 1] * 5


@pytest.mark.parametrize("kind", ["future", "static"])
@pytest.mark.parametrize(
    ("cells", "categories", "expected"),
    [
        ([1, 2], ("A", "01", "02"), ["01", "02"]),
        ([1.0, 2.5], ("2.50", "1", "x"), ["1", "2.50"]),
        (["1.0", "x", "y"], ("x", "1", "y"), ["1", "x", "y"]),
        ([True, False], ("unknown", "TRUE", "FALSE"), ["TRUE", "FALSE"]),
        (["true", "False"], ("False", "True", "x"), ["True", "False"]),
    ],
)
def test_cells_of_other_types_stand_for_categories(
    kind: str, cells: list[object], categories: tuple[str, ...], expected: list[str]
) -> None:
    both = [pd.DataFrame({"id": f"s{i}", "ds": DAYS, "x": each}) for i, each in enumerate(cells)]
    frame = pd.concat(both, ignore_index=True).assign(y=1)
    panel = read_frame(frame, Reading.model_validate({f"{kind}_covariates": "x"}))
    covariate = Covariate(name="x", type="category", categories=categories)
    tables = recoded(panel, Covariates.model_validate({kind: [covariate]})).tables
    codes = [one.static if one.covariates is None else one.covariates[0] for one in tables]
    assert [categories[int(each[0])] for each in codes if each is not None] == expected


def test_a_number_that_may_be_two_categories_is_refused() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": range(10), "x": 7})
    wanted = Covariate(name="x", type="category", categories=("007", "7", "8"))
    message = "covariate 'x': 7 may be the category '007' or '7'; train the model with names"
    with pytest.raises(DataError, match=message):
        recoded(read_frame(frame, Reading(future_covariates=("x",))), Covariates(future=(wanted,)))
    with pytest.raises(DataError, match="column 'x': 7 may be the category '007' or '7'"):
        read_frame(frame, Reading(past_covariates=("x",), channels=("y", "x=007", "x=7")))


def test_large_numbers_are_no_categories_by_value() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": range(10), "x": 2**53 + 2})
    wanted = Covariate(name="x", type="category", categories=(str(2**53 + 1), "a"))
    with pytest.raises(DataError, match="'9007199254740994' is no category"):
        recoded(read_frame(frame, Reading(future_covariates=("x",))), Covariates(future=(wanted,)))


@pytest.mark.parametrize("other", [False, True])
def test_past_categories_that_training_rows_lack_are_refused_or_others(
    tmp_path: Path, other: bool
) -> None:
    known = fit_covariates(panel(tmp_path, "past"), TRAIN, other=other)
    channels = ("y", "price", "wind", *known.past[2].channels)
    options = {"past_covariates": "price,wind,sky", "static_covariates": "place"}
    again = read_text(tmp_path, text(*ROWS, header=HEADER), channels=channels, **options)
    if other:
        coded = recoded(again, known)
        assert coded.channels == channels
        assert coded.tables[0].values[7:, 3:].tolist() == [[0, 0], [1, 0], [0, 0]]
    else:
        with pytest.raises(DataError, match=r"past covariate 'sky': 'hail' is no category"):
            recoded(again, known)


@pytest.mark.parametrize(
    ("wanted", "cells", "message"),
    [
        ({"type": "boolean"}, [0, 1, 2, 0], "expected a boolean, and the column holds numbers"),
        ({"type": "category", "categories": ("a", "b")}, [0, 1, 0, 1], "expected a category, and"),
    ],
)
def test_past_columns_of_another_type_are_refused(
    wanted: dict[str, object], cells: list[int], message: str
) -> None:
    frame = pd.DataFrame({"ds": DAYS[:4], "y": range(4), "x": cells})
    whole = read_frame(frame, Reading(past_covariates=("x",)))
    known = Covariates(past=(Covariate.model_validate({"name": "x"} | wanted),))
    with pytest.raises(DataError, match=f"past covariate 'x': {message}"):
        recoded(whole, known)


def test_numbers_may_be_categories_and_truth_values_numbers() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": range(10), "x": [7, 12] * 5, "z": [True, False] * 5})
    whole = read_frame(frame, Reading(channels=("y",), future_covariates=("x", "z")))
    region = Covariate(name="x", type="category", categories=("12", "7"))
    coded = recoded(whole, Covariates(future=(region, Covariate(name="z")))).tables[0].covariates
    assert coded is not None
    assert coded[:2].tolist() == [[1, 1], [0, 0]]
    less = region.model_copy(update={"categories": ("7",)})
    with pytest.raises(DataError, match="future covariate 'x': '12' is no category of the train"):
        recoded(whole, Covariates(future=(less,)))


def test_a_panel_of_some_channels_has_their_past_covariates(tmp_path: Path) -> None:
    whole = panel(tmp_path, "past")
    some = whole.select(("sky=fog", "sky=hail", "y", "wind"))
    assert some.covariates is not None
    assert some.covariates.past == (
        Covariate(name="wind"),
        Covariate(name="sky", type="category", categories=("fog", "hail")),
    )
    assert whole.select(("y",)).covariates == Covariates(
        static=whole.covariates.static if whole.covariates else ()
    )


def test_options_read_the_covariates_of_a_model(tmp_path: Path) -> None:
    whole = panel(tmp_path, "past")
    assert Reading.of_covariates(whole.covariates) == {
        "past_covariates": ("price", "wind", "sky"),
        "static_covariates": ("place",),
    }
    assert Reading.of_covariates(None) == {}
