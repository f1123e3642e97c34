import subprocess
import sys
from typing import Any, Literal

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.forecaster import ARCHITECTURES, AnyConfig, Forecaster, ForecasterConfig
from foretell.models.registry import Registry
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.support.process import ROOT

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
def test_refuses_the_config_of_no_architecture(name: object) -> None:
    with pytest.raises(ValidationError, match=f"expected one of autoformer, .*, got {name!r}"):
        ADAPTER.validate_python({"architecture": name, **SIZES})


HOURLY = Calendar.for_frequency(Frequency.parse("h"), "scaled")
INTEGERS = Calendar.for_frequency(Frequency.parse("h"), "integer")
SMALL = {"channels": 3, "context": 24, "horizon": 10, "d_model": 8, "heads": 2, "d_ff": 16}
LABELLED = SMALL | {"label": 8, "calendar": HOURLY}
PATCHES = SMALL | {"patch": 6, "stride": 3}
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
    ("itransformer", SMALL | {"calendar": HOURLY}),
    ("itransformer", SMALL),
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
    ("huggingface-time-series-transformer", SMALL | {"calendar": HOURLY}),
]
EVERY_CASE = pytest.mark.parametrize(("name", "fields"), CASES)


def build(name: str, fields: dict[str, Any]) -> Forecaster:
    torch.manual_seed(0)
    return ARCHITECTURES.read({"architecture": name, **fields}).build().eval()


def windows_of(model: Forecaster, count: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    history, *calendars = model.example_inputs(count)
    integers = model.config.calendar is not None and model.config.calendar.encoding == "integer"
    times = (torch.ones_like(one) if integers else torch.rand_like(one) for one in calendars)
    return torch.randn_like(history), *times


@EVERY_CASE
def test_what_it_shows_is_as_described(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields)
    found = model.explain(*windows_of(model, 2))
    assert found.forecast.shape == (2, fields["horizon"], fields["channels"])
    assert list(found.attention) == [stage.name for stage in model.stages]
    for stage in model.stages:
        for output in stage.outputs:
            part = getattr(found.attention[stage.name], output.name.removeprefix(stage.part("")))
            assert tuple(part.shape) == (2, *output.shape)
    torch.testing.assert_close(model(*windows_of(model, 2)), found.forecast)


@EVERY_CASE
def test_a_batch_changes_no_forecast(name: str, fields: dict[str, Any]) -> None:
    model = build(name, fields)
    parts = windows_of(model, 5)
    together = model(*parts)
    for i in range(5):
        alone = model(*(part[i : i + 1] for part in parts))
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
def test_what_a_layer_hands_on_reaches_the_next(name: str, attention: list[str]) -> None:
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


def test_names_are_unique() -> None:
    class Other(ForecasterConfig):
        architecture: Literal["patchtst"] = "patchtst"

    with pytest.raises(ValueError, match="architecture: there are two of the name 'patchtst'"):
        ARCHITECTURES.add(Other)


def test_threads_that_ask_at_once_all_know_every_name() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from foretell.models.forecaster import ARCHITECTURES\n"
        "with ThreadPoolExecutor(6) as threads:\n"
        "    seen = list(threads.map(lambda _: tuple(ARCHITECTURES), range(6)))\n"
        "assert len(set(seen)) == 1 and len(seen[0]) > 3, seen\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_file_of_the_folder_is_found() -> None:
    found = Registry[ForecasterConfig](
        "foretell.models.architectures", "architecture", ForecasterConfig
    )
    # They add themselves to the one registry, whoever imports them.
    assert len(found) == 0
    assert {"autoformer", "patchtst", "transformer"} <= set(ARCHITECTURES)
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    with pytest.raises(KeyError):
        ARCHITECTURES["oracle"]
