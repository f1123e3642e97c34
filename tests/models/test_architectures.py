import subprocess
import sys
from typing import Any, Literal

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from foretell.bundle.covariates import Covariates
from foretell.models.architectures.transformer import Transformer
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.config import ARCHITECTURES, AnyConfig, ForecasterConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.models.registry import Registry
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.checkpoints import SMALL, randomised
from tests.support.process import ROOT
from tests.support.variants import COVARIATES, Size

SIZES = {"channels": 2, "context": 24, "horizon": 4}
ADAPTER: TypeAdapter[ForecasterConfig] = TypeAdapter(AnyConfig)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_config_is_found_and_built_by_name(name: str) -> None:
    config = ADAPTER.validate_python({"architecture": name, **SIZES})
    assert type(config) is ARCHITECTURES[name]
    assert config.build().config is config
    assert ADAPTER.validate_json(ADAPTER.dump_json(config)) == config
    assert ADAPTER.validate_python(config) is config


@pytest.mark.parametrize("name", ["oracle", None, 3])
def test_config_without_an_architecture_is_refused(name: object) -> None:
    with pytest.raises(ValidationError, match=f"expected one of autoformer, .*, got {name!r}"):
        ADAPTER.validate_python({"architecture": name, **SIZES})


HOURS = Calendar.for_frequency(Frequency.parse("h"), "scaled")
INTEGERS = Calendar.for_frequency(Frequency.parse("h"), "integer")
SIZED = {"channels": 3, "context": 24, "horizon": 10, "d_model": 8, "heads": 2, "d_ff": 16}
LABELLED = SIZED | {"label": 8, "calendar": HOURS}
PATCHES = SIZED | {"patch": 6, "stride": 3}
OFFICIAL = {
    "patch_bias": True,
    "positions": "learned",
    "norm": "batch",
    "final_norm": None,
    "attention": "residual-softmax",
}
LAGS = {"mechanism": "autocorrelation", "factor": 2.0}
# Odd lengths, and a decoder shorter or longer than the encoder.
LENGTHS = [
    {"context": context, "label": label, "horizon": horizon}
    for context, label, horizon in [(24, 8, 10), (25, 8, 11), (13, 0, 7), (12, 12, 36)]
]
SIZED_TIDE = {"channels": 3, "context": 24, "horizon": 10, "d_model": 8}
WITH_COVARIATES = {"covariates": COVARIATES}
DECODED = WITH_COVARIATES | {"covariate_decoder": True}
COVARIATE_CASES: list[tuple[str, dict[str, Any]]] = [
    ("autoformer", LABELLED | WITH_COVARIATES),
    ("transformer", LABELLED | WITH_COVARIATES | {"calendar": None}),
    ("transformer", LABELLED | WITH_COVARIATES | {"calendar": INTEGERS, "embedding": "learned"}),
    ("transformer", LABELLED | DECODED),
    (
        "transformer",
        LABELLED | WITH_COVARIATES | {"decoding": "autoregressive", "decoding_chunk": 4},
    ),
    ("dlinear", SIZES | DECODED | {"covariate_neighbours": 0}),
    ("itransformer", SIZED | DECODED | {"calendar": HOURS, "head": "student-t"}),
    ("patchtst", PATCHES | DECODED | {"covariate_neighbours": 3}),
    (
        "patchtst",
        PATCHES
        | {"covariates": Covariates(static=COVARIATES.static)}
        | {"covariate_decoder": True},
    ),
    ("patchtst", PATCHES | {"covariates": Covariates(past=COVARIATES.past)}),
    ("timexer", SIZED | DECODED | {"patch": 6, "calendar": HOURS}),
    ("tide", SIZED_TIDE | WITH_COVARIATES | {"calendar": HOURS}),
    ("tide", SIZED_TIDE | WITH_COVARIATES | {"covariate_norm": "minmax1+mean"}),
    ("huggingface-autoformer", LABELLED | WITH_COVARIATES),
    ("huggingface-time-series-transformer", SIZED | WITH_COVARIATES),
]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("dlinear", SIZES),
    *(
        (
            "autoformer",
            LABELLED | lengths | {"moving_average": 5, "attention": LAGS | {"lags": lags}},
        )
        for lengths in LENGTHS
        for lags in ("all", "even")
    ),
    ("autoformer", LABELLED | {"calendar": None}),
    *(("transformer", LABELLED | lengths) for lengths in LENGTHS),
    *(
        ("transformer", LABELLED | {"calendar": INTEGERS, "embedding": embedding})
        for embedding in ("learned", "fixed")
    ),
    ("transformer", LABELLED | {"decoding": "autoregressive", "decoding_chunk": 4}),
    ("itransformer", SIZED | {"calendar": HOURS}),
    ("itransformer", SIZED),
    ("timexer", SIZED | {"patch": 6, "calendar": HOURS}),
    ("timexer", SIZED | {"patch": 7, "attention": ["local", "softmax", "linear", "softmax"]}),
    *(
        ("patchtst", PATCHES | form)
        for form in (
            {},
            {"final_norm": "layer"},
            {"final_norm": None, "norm": "batch"},
            {"pad_end": False},
            {"stride": 6, "patch": 24},
            {"stride": 6, "patch": 28},
            {"stride": 5, "patch": 7},
            OFFICIAL,
            OFFICIAL | {"affine": True, "window_norm": "last"},
            OFFICIAL | {"individual": True, "decomposition": 5},
            {"window_norm": None},
        )
    ),
    ("huggingface-patchtst", PATCHES),
    ("huggingface-patchtst", PATCHES | {"channel_attention": True, "head": "student-t"}),
    ("huggingface-autoformer", LABELLED | {"attention": LAGS | {"factor": 1.0}}),
    ("huggingface-time-series-transformer", SIZED | {"calendar": HOURS}),
    *COVARIATE_CASES,
]
EVERY_CASE = pytest.mark.parametrize(("name", "fields"), CASES)


def build(name: str, fields: dict[str, Any]) -> Forecaster:
    torch.manual_seed(0)
    return ARCHITECTURES.read({"architecture": name, **fields}).build().eval()


def inputs_of(model: Forecaster, count: int) -> Inputs:
    return Size("", model.config).inputs(count)


@EVERY_CASE
def test_attention_matches_the_description(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields)
    found = model.explain(*inputs_of(model, 2))
    assert found.forecast.shape == (2, fields["horizon"], fields["channels"])
    assert list(found.attention) == [stage.name for stage in model.stages]
    for stage in model.stages:
        for output in stage.outputs:
            part = getattr(found.attention[stage.name], output.name.removeprefix(stage.part("")))
            assert tuple(part.shape) == (2, *output.shape)
    torch.testing.assert_close(model(*inputs_of(model, 2)), found.forecast)


@EVERY_CASE
def test_forecast_does_not_depend_on_the_batch(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields)
    parts = inputs_of(model, 5)
    together = model(*parts)
    for i in range(5):
        alone = model(*(None if part is None else part[i : i + 1] for part in parts))
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-5)


RESIDUAL = ["residual-softmax", "residual-softmax", "softmax"]


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("autoformer", RESIDUAL),
        ("itransformer", RESIDUAL[:2]),
        ("patchtst", RESIDUAL[:2]),
        ("transformer", RESIDUAL),
    ],
)
def test_scores_reach_the_next_layer(name: str, attention: list[str]) -> None:
    fields = {"architecture": name, "attention": attention, **SIZES}
    model = ARCHITECTURES.read(fields).build().eval()
    given: list[torch.Tensor | None] = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.residual:
            module.register_forward_pre_hook(
                lambda _, __, options: given.append(options["inherited"]), with_kwargs=True
            )
    model(torch.randn(1, 24, 2))
    first, second = given
    assert first is None
    assert second is not None


@pytest.mark.parametrize(("name", "fields"), COVARIATE_CASES)
def test_each_covariate_changes_the_forecast(name: str, fields: dict[str, Any]) -> None:
    model = randomised(ARCHITECTURES.read({"architecture": name, **fields}))
    inputs = inputs_of(model, 2)
    forecast = model(*inputs)
    covariates = {n: part for n, part in inputs._asdict().items() if "covariates" in n}
    for input_name, codes in covariates.items():
        for place in range(0 if codes is None else codes.shape[-1]):
            other = codes.clone()
            other[..., place] = (other[..., place] + 1) % 2
            changed = model(*inputs._replace(**{input_name: other}))
            assert not torch.equal(changed, forecast), (input_name, place)


def test_decoder_of_covariates_begins_with_the_forecast_of_the_network() -> None:
    with_decoder = build("patchtst", PATCHES | DECODED)
    plain = build("patchtst", PATCHES)
    plain.load_state_dict(with_decoder.state_dict(), strict=False)
    inputs = inputs_of(with_decoder, 2)
    torch.testing.assert_close(with_decoder(*inputs), plain(inputs.history))


def test_trained_output_has_the_covariates_too() -> None:
    model = randomised(ARCHITECTURES.read({"architecture": "patchtst", **PATCHES, **DECODED}))
    inputs = inputs_of(model, 2)
    learnt, _ = model.forecast_to_learn(inputs, torch.zeros(2, 10, 3), 0.0)
    torch.testing.assert_close(learnt, model(*inputs))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("patchtst", WITH_COVARIATES, "patchtst does not read them itself; set covariate_decoder"),
        ("dlinear", {"covariate_decoder": True}, "covariate_decoder: there are no covariates"),
        ("dlinear", DECODED | {"covariate_neighbours": 25}, "at most the context 24"),
    ],
)
def test_covariates_need_a_reader(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ARCHITECTURES.read({"architecture": name, **SIZES, **fields})


def test_names_are_unique() -> None:
    class Other(ForecasterConfig):
        architecture: Literal["patchtst"] = "patchtst"

    with pytest.raises(ValueError, match="architecture: the name 'patchtst' is registered twice"):
        ARCHITECTURES.add(Other)


def test_concurrent_threads_see_every_architecture() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from foretell.models.config import ARCHITECTURES\n"
        "with ThreadPoolExecutor(6) as threads:\n"
        "    seen = list(threads.map(lambda _: tuple(ARCHITECTURES), range(6)))\n"
        "assert len(set(seen)) == 1 and len(seen[0]) > 3, seen\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_file_of_the_folder_is_found() -> None:
    found = Registry[ForecasterConfig](
        "foretell.models.architectures", "architecture", ForecasterConfig
    )
    # Modules register their architectures when they are imported.
    assert len(found) == 0
    assert {"autoformer", "patchtst", "transformer"} <= set(ARCHITECTURES)
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    with pytest.raises(KeyError):
        ARCHITECTURES["oracle"]


WINDOW = {name: SMALL[name] for name in ("channels", "context", "horizon")}


def normed(architecture: str, **fields: object) -> Forecaster:
    return randomised(ARCHITECTURES[architecture].model_validate({**WINDOW, **fields}))


def drawn() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 48, 3)


@pytest.mark.parametrize("centre", ["mean", "last"])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_level_and_scale_of_a_window_go_through(
    architecture: str, affine: bool, centre: str
) -> None:
    model, windows = normed(architecture, window_norm=centre, affine=affine), drawn()
    if affine:
        assert model.window_norm is not None
        torch.nn.init.uniform_(model.window_norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(model.window_norm.bias)
    found = model(windows * 7 + 100)
    torch.testing.assert_close(found, model(windows) * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(model.explain(windows).forecast, model(windows))


@pytest.mark.parametrize("name", ["standard", "robust", "invariant", "minmax1+last"])
def test_scalers_stand_around_a_model_as_well(name: str) -> None:
    model, windows = normed("patchtst", window_norm=name), drawn()
    # Scalers add 1e-6 to the spread.
    found = model(windows * 7 + 100)
    torch.testing.assert_close(found, model(windows) * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(model.explain(windows).forecast, model(windows))


@pytest.mark.parametrize("name", ["median", "robust+", "robust+last+mean"])
def test_unknown_norm_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected mean, last, standard, "):
        normed("dlinear", window_norm=name)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_scale_changes_the_forecast_without_a_norm(architecture: str) -> None:
    model, windows = normed(architecture, window_norm=None), drawn()
    assert not torch.allclose(model(windows * 7), model(windows) * 7, atol=0.05)


def test_forecast_of_a_zero_network_is_the_subtracted_level() -> None:
    """A network with zero output forecasts the subtracted level."""
    windows = drawn()
    for centre, expected in (("last", windows[:, -1:]), ("mean", windows.mean(1, keepdim=True))):
        model = normed("dlinear", window_norm=centre)
        for weight in model.parameters():
            torch.nn.init.zeros_(weight)
        torch.testing.assert_close(model(windows), expected.expand(-1, 12, -1))


@pytest.mark.parametrize("feeding", ["teacher", "scheduled", "free"])
def test_decoder_target_is_normalised_with_the_window(feeding: str) -> None:
    """A decoder that reads the target reads it at the level of the window."""
    fields: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 4, "label": 12}
    model = normed("transformer", window_norm="mean", feeding=feeding, d_model=8, **fields)
    assert isinstance(model, Transformer)
    windows, target = drawn(), torch.randn(2, 12, 3)
    found = []
    for scale, level in ((1, 0), (7, 100)):
        torch.manual_seed(0)
        inputs = Inputs(windows * scale + level)
        forecast, _ = model.forecast_to_learn(inputs, target * scale + level, 0.5)
        found.append((forecast - level) / scale)
    torch.testing.assert_close(*found, atol=1e-3, rtol=0)


def test_trained_parameters_need_something_to_scale() -> None:
    for name in (None, "robust"):
        with pytest.raises(ValueError, match="affine: needs window_norm mean or last"):
            normed("dlinear", window_norm=name, affine=True)
    assert normed("dlinear", window_norm="robust+mean", affine=True).window_norm is not None


COLUMNS = [0, 2]


@pytest.mark.parametrize("norm", [None, "mean"])
# A TimeXer has tokens of its targets alone, and a TiDE reads the others as past covariates.
@pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES} - {"tide", "timexer"}))
def test_targets_equal_those_of_the_model_of_all_channels(
    architecture: str, norm: str | None
) -> None:
    whole = normed(architecture, window_norm=norm)
    some = normed(architecture, window_norm=norm, targets=COLUMNS)
    some.load_state_dict(whole.state_dict())
    given, future = drawn() * 3 + 5, torch.randn(2, 12, 3)
    expected = whole(given)[..., COLUMNS]
    torch.testing.assert_close(some(given), expected)
    torch.testing.assert_close(some.explain(given).forecast, expected)
    torch.testing.assert_close(some.double()(given.double()).float(), expected)
    some.float()
    learnt, _ = some.forecast_to_learn(Inputs(given), future, 0.0)
    torch.testing.assert_close(learnt, expected)


@pytest.mark.parametrize("targets", [(), (3,), (-1,), (1, 0), (1, 1)])
def test_places_of_channels_in_their_order(targets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="targets"):
        normed("dlinear", targets=targets)


def test_a_decoder_that_reads_its_forecasts_forecasts_all_channels() -> None:
    fields: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 4, "label": 12}
    assert normed("transformer", **fields).config.targets is None
    with pytest.raises(ValueError, match="autoregressive decoding reads its own forecasts"):
        normed("transformer", targets=(0,), **fields)
