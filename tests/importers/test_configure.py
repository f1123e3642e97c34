import pytest

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.code_base import Architecture
from foretell.importers.configure import configure, relevant, required
from foretell.importers.errors import ImporterError
from foretell.importers.given import read_arguments
from foretell.importers.infer import infer
from foretell.importers.layouts import Layout
from foretell.importers.registry import CODE_BASES
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.forecaster import ForecasterConfig
from tests.importers import published


def entry(form: str) -> tuple[Architecture, Layout]:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    return published.entry(source, architecture), published.layout(source, architecture)


def arguments(form: str, **changes: str) -> Arguments:
    """All arguments of a model, those that its file tells among them."""
    architecture, layout = entry(form)
    inferred = infer(published.publish(published.make(form), layout), architecture, layout)
    given = published.ARGUMENTS[form] | {"enc_in": "3", "stride": "3", "padding_patch": "end"}
    extra = {"revin": "1", "activation": "gelu", "n_heads": "2"}
    flags = read_arguments(given | extra | changes)
    return {"lags": Argument("even", "fixed")} | flags | inferred.arguments


def config(form: str, **changes: str) -> ForecasterConfig:
    return configure(entry(form)[0], arguments(form, **changes))


@pytest.mark.parametrize("form", ["autoformer", "transformer", "patchtst", "official"])
def test_gives_the_config_it_was_made_with(form: str) -> None:
    expected = published.make(form).config
    if isinstance(expected, AutoformerConfig):
        (mechanism,) = expected.attention
        even = mechanism.model_copy(update={"lags": "even"})
        expected = expected.model_copy(update={"attention": (even,)})
    assert config(form) == expected


@pytest.mark.parametrize(
    ("source", "lags"), [("tslib", "even"), ("tfb", "even"), ("autoformer", "all")]
)
def test_lags_of_the_code_base(source: str, lags: str) -> None:
    assert CODE_BASES[source].constants["lags"] == lags


@pytest.mark.parametrize(
    ("revin", "subtract_last", "centre"), [("1", "0", "mean"), ("1", "1", "last"), ("0", "1", None)]
)
def test_mode_of_the_instance_norm(revin: str, subtract_last: str, centre: str | None) -> None:
    found = config("official", revin=revin, subtract_last=subtract_last)
    assert isinstance(found, PatchTSTConfig)
    assert found.window_norm == centre


def test_missing_sizes_mean_missing_keys() -> None:
    known = arguments("autoformer")
    del known["d_ff"]
    with pytest.raises(ImporterError, match="no key of the file tells d_ff"):
        configure(entry("autoformer")[0], known)


def test_arguments_that_do_not_fit_together() -> None:
    with pytest.raises(ImporterError, match="3 heads do not divide d_model 8"):
        config("transformer", n_heads="3")


def ones(*names: str) -> Arguments:
    return {name: Argument(1, "x") for name in names}


def test_relevant_is_what_the_architecture_reads() -> None:
    known = ones("seq_len", "factor", "stride", "label_len", "data", "split")
    assert list(relevant(entry("transformer")[0], known)) == ["seq_len", "label_len", "split"]
    assert list(relevant(entry("patchtst")[0], known)) == ["seq_len", "stride", "split"]


def test_required_of_each_architecture() -> None:
    assert "moving_avg" in required(*entry("autoformer"), {})
    # What shapes or data tell is not asked for.
    assert not {"d_model", "enc_in", "dropout"} & set(required(*entry("autoformer"), {}))
    assert "moving_avg" not in required(*entry("transformer"), {})
    assert "stride" in required(*entry("patchtst"), {})


@pytest.mark.parametrize("value", [0, 1])
def test_what_matters_only_where_another_is_set(value: int) -> None:
    switches = {name: Argument(value, "x") for name in ("revin", "decomposition")}
    asked = required(*entry("official"), switches)
    assert ("subtract_last" in asked) == ("kernel_size" in asked) == bool(value)
    shown = relevant(entry("official")[0], switches | ones("kernel_size", "subtract_last"))
    assert ("subtract_last" in shown) == ("kernel_size" in shown) == bool(value)
