import pytest

from foretell.models.autoformer import AutoformerConfig
from foretell.models.importers.arguments import Facts, Known, read_arguments
from foretell.models.importers.configure import configure, used
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import Told, infer
from foretell.models.importers.sources import CODE_BASES
from foretell.models.patchtst import PatchTSTConfig
from tests.models.importers import published


def told(form: str, **changes: object) -> Told:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)  # type: ignore[arg-type]
    return infer(published.publish(published.make(form, **changes), layout), layout)


def arguments(form: str, known: Told, **changes: object) -> Facts:
    given = published.ARGUMENTS[form] | {"enc_in": "3", "stride": "3", "padding_patch": "end"}
    extra = {"revin": "1", "activation": "gelu", "n_heads": "2"}
    return read_arguments(given | extra | changes, lambda _: "flags") | known.facts


@pytest.mark.parametrize("form", ["autoformer", "transformer", "patchtst", "official"])
def test_gives_the_config_it_was_made_with(form: str) -> None:
    architecture = "patchtst" if form == "official" else form
    source = "patchtst" if form == "official" else "tslib"
    known = told(form)
    config = configure(
        architecture, CODE_BASES[source], known, arguments(form, known, dropout="0.1")
    )
    expected = published.make(form).config
    if isinstance(expected, AutoformerConfig):
        expected = expected.model_copy(update={"lags": "even"})
    assert config == expected


@pytest.mark.parametrize(
    ("source", "lags"), [("tslib", "even"), ("tfb", "even"), ("autoformer", "all")]
)
def test_lags_of_the_code_base(source: str, lags: str) -> None:
    known = told("autoformer")
    config = configure("autoformer", CODE_BASES[source], known, arguments("autoformer", known))  # type: ignore[index]
    assert isinstance(config, AutoformerConfig)
    assert config.lags == lags


@pytest.mark.parametrize(
    ("revin", "subtract_last", "centre"), [("1", "0", "mean"), ("1", "1", "last"), ("0", "1", None)]
)
def test_mode_of_the_instance_norm(revin: str, subtract_last: str, centre: str | None) -> None:
    known = told("official")
    facts = arguments("official", known, revin=revin, subtract_last=subtract_last)
    config = configure("patchtst", CODE_BASES["patchtst"], known, facts)
    assert isinstance(config, PatchTSTConfig)
    assert config.instance_norm == centre


def test_missing_sizes_mean_missing_keys() -> None:
    known = told("autoformer")
    facts = arguments("autoformer", known)
    del facts["d_ff"]
    with pytest.raises(ImporterError, match="no key of the file tells d_ff"):
        configure("autoformer", CODE_BASES["tslib"], known, facts)


def test_arguments_that_do_not_fit_together() -> None:
    known = told("transformer")
    facts = arguments("transformer", known, n_heads="3")
    with pytest.raises(ImporterError, match="3 heads do not divide d_model 8"):
        configure("transformer", CODE_BASES["tslib"], known, facts)


def test_a_transformer_of_other_positions() -> None:
    known = told("transformer")._replace(learned_positions=True)
    with pytest.raises(ImporterError, match="positions are not the sinusoids"):
        configure("transformer", CODE_BASES["tslib"], known, arguments("transformer", known))


def test_used_leaves_out_what_the_architecture_does_not_read() -> None:
    facts = {name: Known(1, "x") for name in ("seq_len", "factor", "stride", "label_len", "data")}
    assert set(used("transformer", facts)) == {"seq_len", "label_len"}
    assert set(used("patchtst", facts)) == {"seq_len", "stride"}
