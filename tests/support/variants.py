"""Small models of every form that can be exported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.scaler import Scaler
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.architectures.huggingface_autoformer import HuggingFaceAutoformerConfig
from foretell.models.architectures.huggingface_patchtst import HuggingFacePatchTSTConfig
from foretell.models.architectures.huggingface_time_series_transformer import (
    HuggingFaceTimeSeriesTransformerConfig,
)
from foretell.models.architectures.itransformer import ITransformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.architectures.tide import TideConfig
from foretell.models.architectures.timexer import TimeXerConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.notation import read_notation
from foretell.models.config import ForecasterConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.checkpoints import HOURLY, SMALL


@dataclass(frozen=True)
class Size:
    """A model with random weights.

    Attributes:
        name: Name in reports and tests.
        config: Its configuration.
    """

    name: str
    config: ForecasterConfig

    def model(self) -> Forecaster:
        """The plain module in evaluation."""
        torch.manual_seed(0)
        model = self.config.build().eval()
        decoder = model.covariate_decoder
        if decoder is not None:
            # Otherwise the decoder would add zero.
            decoder.change.reset_parameters()
        return model

    def inputs(self, batch: int) -> Inputs:
        """Random inputs of the model."""
        generator = torch.Generator().manual_seed(batch)
        calendar = self.config.calendar
        made = {}
        for name, part in self.model().example_inputs(batch)._asdict().items():
            if part is None:
                continue
            made[name] = torch.randn(part.shape, generator=generator)
            has_integers = calendar is not None and calendar.encoding == "integer"
            if "covariates" in name or (has_integers and "calendar" in name):
                # Every feature and every category has such a value.
                made[name] = made[name].abs().clamp(max=3).floor()
        return Inputs(**made)


def scaler_of(size: Size) -> Scaler:
    """The scaler of a model with random weights: none."""
    return Scaler.identity(size.config.channels)


_INTEGERS = Calendar.for_frequency(Frequency.parse("h"), "integer")
_SMALL: dict[str, Any] = SMALL | {"encoder_layers": 2}
_HALF: dict[str, Any] = {"label": 24, "calendar": HOURLY}
_EVEN: Any = {"mechanism": "autocorrelation", "lags": "even"}
_FEW: Any = {"mechanism": "autocorrelation", "factor": 1}
_WIDE: dict[str, Any] = {"d_model": 32, "heads": 4}
_OFFICIAL: dict[str, Any] = {
    "patch_bias": True,
    "positions": "learned",
    "norm": "batch",
    "final_norm": None,
    "attention": "residual-softmax",
}


def _embedded(kind: str) -> dict[str, Any]:
    return {"label": 24, "embedding": kind, "calendar": _INTEGERS}


AUTOFORMERS = (
    Size("Autoformer", AutoformerConfig(**_SMALL, **_HALF, moving_average=13)),
    Size(
        "Autoformer, odd lengths",
        AutoformerConfig(**_SMALL | {"context": 37}, label=16, attention=_EVEN, decoder_layers=2),
    ),
    Size(
        "Autoformer, longer decoder, learned calendar",
        AutoformerConfig(**_SMALL | {"horizon": 40}, **_embedded("learned")),
    ),
    Size(
        "Autoformer, fixed calendar",
        AutoformerConfig(**_SMALL, **_embedded("fixed"), attention=_FEW),
    ),
    Size(
        "Autoformer, long context",
        AutoformerConfig(**_SMALL | {"context": 192}, label=96, calendar=HOURLY),
    ),
    Size(
        "Autoformer, normalised windows",
        AutoformerConfig(**_SMALL, **_HALF, window_norm="mean", affine=True),
    ),
)
TRANSFORMERS = (
    Size("Transformer", TransformerConfig(**_SMALL, **_HALF)),
    Size(
        "Transformer, no label, no calendar",
        TransformerConfig(**_SMALL, label=0, decoder_layers=2, activation="relu"),
    ),
    Size("Transformer, learned calendar", TransformerConfig(**_SMALL, **_embedded("learned"))),
    Size("Transformer, fixed calendar", TransformerConfig(**_SMALL, **_embedded("fixed"))),
    Size(
        "Transformer, memory of the same height",
        TransformerConfig(**_SMALL, **_HALF, memory="same", decoder_layers=3),
    ),
    Size(
        "Transformer, autoregressive",
        TransformerConfig(
            **_SMALL, **_HALF, decoding="autoregressive", decoding_chunk=5, decoder_layers=2
        ),
    ),
    Size(
        "Transformer, normalised windows",
        TransformerConfig(**_SMALL, **_HALF, window_norm="last"),
    ),
    Size(
        "Transformer, whose decoder looks ahead, windows by median",
        TransformerConfig(**_SMALL, **_HALF, causal=False, window_norm="robust"),
    ),
)
PATCHTSTS = (
    Size("PatchTST", PatchTSTConfig(**_SMALL)),
    Size("PatchTST, wide", PatchTSTConfig(**_SMALL | _WIDE)),
    Size(
        "PatchTST, unpadded, layer norm last",
        PatchTSTConfig(**_SMALL, final_norm="layer", patch=10, stride=3, pad_end=False),
    ),
    Size("PatchTST, not normalised", PatchTSTConfig(**_SMALL | _WIDE, window_norm=None)),
    Size(
        "PatchTST, official, individual heads",
        PatchTSTConfig(**_SMALL, **_OFFICIAL, affine=True, individual=True),
    ),
    Size(
        "PatchTST, official, decomposition",
        PatchTSTConfig(**_SMALL, **_OFFICIAL, decomposition=9, window_norm="last"),
    ),
    Size(
        "PatchTST, channels attend to each other on a grid",
        PatchTSTConfig(
            **_SMALL,
            joint_channels=True,
            attention={"mechanism": "rotary", "grid_columns": 6},
        ),
    ),
    Size("PatchTST, official, wide", PatchTSTConfig(**_SMALL | _WIDE, **_OFFICIAL, affine=True)),
    Size("PatchTST, windows by median", PatchTSTConfig(**_SMALL, window_norm="robust+last")),
)
_SIZE: dict[str, Any] = {"channels": 3, "context": 48, "horizon": 12}
DLINEARS = (
    Size("DLinear", DLinearConfig(**_SIZE)),
    Size("DLinear, individual", DLinearConfig(**_SIZE, individual=True, moving_average=5)),
    Size("DLinear, normalised windows", DLinearConfig(**_SIZE, window_norm="mean", affine=True)),
    Size("DLinear, windows by median", DLinearConfig(**_SIZE, window_norm="invariant")),
    Size("DLinear, windows by range", DLinearConfig(**_SIZE, window_norm="minmax1+decoupled")),
)
ITRANSFORMERS = (
    Size("iTransformer", ITransformerConfig(**_SMALL, calendar=HOURLY)),
    Size(
        "iTransformer, not normalised",
        ITransformerConfig(**_SMALL, window_norm=None),
    ),
)
TIMEXERS = (
    Size("TimeXer", TimeXerConfig(**_SMALL, calendar=HOURLY, targets=(1,))),
    Size("TimeXer, all channels", TimeXerConfig(**_SMALL, patch=10, window_norm=None)),
    Size(
        "TimeXer, some channels, Student's t",
        TimeXerConfig(**_SMALL, targets=(0, 2), exogenous="all", head="student-t"),
    ),
    Size(
        "TimeXer, calendar alone",
        TimeXerConfig(**_SMALL | {"channels": 1}, exogenous="others", calendar=HOURLY),
    ),
)
HUGGINGFACE_PATCHTSTS = (
    Size(
        "PatchTST of Hugging Face, channels attend, largest values",
        HuggingFacePatchTSTConfig(
            **_SMALL, channel_attention=True, pooling="max", stride=7, head="student-t"
        ),
    ),
    Size(
        "PatchTST of Hugging Face, class token, own embeddings, magnitudes",
        HuggingFacePatchTSTConfig(
            **_SMALL,
            channel_attention=True,
            class_token=True,
            own_embedding=True,
            norm="layer",
            pre_norm=False,
            window_norm="magnitude",
            head="negative-binomial",
        ),
    ),
    Size(
        "PatchTST of Hugging Face, mean of patches",
        HuggingFacePatchTSTConfig(**_SMALL, pooling="mean", window_norm=None),
    ),
)
# Heads of NeuralForecast, with norms of windows within its scalers.
HEADED = (
    Size(
        "DLinear, normal distributions, windows by range",
        DLinearConfig(**_SIZE, window_norm="minmax1", head="neuralforecast-normal"),
    ),
    Size(
        "iTransformer, Student's t",
        ITransformerConfig(
            **_SMALL, window_norm="identity+mean", affine=True, head="neuralforecast-student-t"
        ),
    ),
    Size(
        "PatchTST, negative binomials, individual heads",
        PatchTSTConfig(
            **_SMALL,
            window_norm="robust+last",
            individual=True,
            head="neuralforecast-negative-binomial",
        ),
    ),
    Size(
        "PatchTST, normal distributions",
        PatchTSTConfig(**_SMALL, head="neuralforecast-normal"),
    ),
    Size(
        "Transformer, Student's t",
        TransformerConfig(
            **_SMALL, **_HALF, window_norm="decoupled", head="neuralforecast-student-t"
        ),
    ),
    Size(
        "Autoformer, quantiles",
        AutoformerConfig(
            **_SMALL,
            **_HALF,
            attention=_FEW,
            window_norm="invariant",
            head="quantiles",
            levels=(0.1, 0.5, 0.8),
        ),
    ),
    Size(
        "DLinear, Poisson's distributions",
        DLinearConfig(**_SIZE, window_norm="robust+mean", head="neuralforecast-poisson"),
    ),
    Size(
        "DLinear, implicit quantiles",
        DLinearConfig(
            **_SIZE,
            window_norm="minmax1+last",
            head="implicit-quantiles",
            levels=(0.1, 0.5, 0.8),
        ),
    ),
)
HUGGINGFACE_TRANSFORMERS = (
    Size(
        "TimeSeriesTransformer of Hugging Face",
        HuggingFaceTimeSeriesTransformerConfig(
            **_SMALL,
            value_lags=(1, 24, 3),
            calendar=HOURLY,
            scaling="mean",
            decoder_layers=2,
            decoder_heads=4,
            decoder_d_ff=16,
        ),
    ),
    Size(
        "TimeSeriesTransformer of Hugging Face, magnitudes",
        HuggingFaceTimeSeriesTransformerConfig(**_SMALL, activation="relu"),
    ),
    Size(
        "TimeSeriesTransformer of Hugging Face, sampled paths",
        HuggingFaceTimeSeriesTransformerConfig(**_SMALL | {"horizon": 4}, samples=20),
    ),
)
HUGGINGFACE_AUTOFORMERS = (
    Size(
        "Autoformer of Hugging Face, longer decoder",
        HuggingFaceAutoformerConfig(
            **_SMALL | {"horizon": 20, "encoder_layers": 1},
            value_lags=(1, 24, 3),
            calendar=HOURLY,
            scaling="mean",
            static_features=2,
            moving_average=5,
            decoder_d_ff=16,
            attention={"mechanism": "autocorrelation", "longer_query": "cut"},
            head="student-t",
        ),
    ),
    Size(
        "Autoformer of Hugging Face, magnitudes, odd lengths",
        HuggingFaceAutoformerConfig(
            **_SMALL | {"horizon": 13},
            value_lags=(1,),
            label=12,
            decoder_layers=2,
            head="negative-binomial",
        ),
    ),
)
COVARIATES = Covariates(
    future=(
        Covariate(name="price", mean=10, std=3),
        Covariate(name="sky", type="category", categories=("clear", "rain", "snow"), other=True),
    ),
    past=(Covariate(name="channel 1"),),
    static=(
        Covariate(name="open", type="boolean"),
        Covariate(name="shop", type="category", categories=("a", "b", "c"), other=True),
    ),
)
_DECODED: dict[str, Any] = {
    "covariates": COVARIATES,
    "covariate_decoder": True,
    "targets": (0, 2),
}
_NO_PAST = COVARIATES.model_copy(update={"past": ()})
TIDES = (
    Size(
        "TiDE, covariates, quantiles",
        TideConfig(
            **_SIZE,
            d_model=16,
            covariates=COVARIATES,
            covariate_norm="robust",
            targets=(0, 2),
            calendar=HOURLY,
            window_norm="standard",
            head="quantiles",
            levels=(0.1, 0.5, 0.8),
        ),
    ),
    Size("TiDE, without covariates", TideConfig(**_SIZE, d_model=16, layer_norm=False)),
)
COVARIATED = (
    Size(
        "Autoformer, covariates",
        AutoformerConfig(**_SMALL, **_HALF, covariates=_NO_PAST),
    ),
    Size(
        "Transformer, covariates, learned calendar",
        TransformerConfig(**_SMALL, **_embedded("learned"), covariates=COVARIATES, targets=(0, 2)),
    ),
    Size(
        "PatchTST, covariates, Student's t",
        PatchTSTConfig(
            **_SMALL, **_DECODED, window_norm="identity", head="student-t", covariate_neighbours=3
        ),
    ),
    Size("PatchTST, covariates", PatchTSTConfig(**_SMALL, **_DECODED)),
    Size("TimeXer, covariates", TimeXerConfig(**_SMALL, **_DECODED, calendar=HOURLY)),
    Size(
        "TimeXer, static covariates as tokens, norm of targets",
        TimeXerConfig(
            **_SMALL,
            covariates=Covariates(static=COVARIATES.static),
            static_tokens=True,
            target_norm=True,
            targets=(0, 2),
            patch=10,
            unpatched="newest",
        ),
    ),
    Size(
        "DLinear, static covariates",
        DLinearConfig(
            **_SIZE,
            covariates=Covariates(static=COVARIATES.static),
            covariate_decoder=True,
            window_norm="mean",
        ),
    ),
    Size(
        "TimeSeriesTransformer of Hugging Face, covariates",
        HuggingFaceTimeSeriesTransformerConfig(
            **_SMALL | {"horizon": 4}, value_lags=(1, 5), calendar=HOURLY, covariates=_NO_PAST
        ),
    ),
    Size(
        "Autoformer of Hugging Face, covariates",
        HuggingFaceAutoformerConfig(
            **_SMALL, value_lags=(1, 5), covariates=_NO_PAST, embeddings=(3,), head="student-t"
        ),
    ),
)
MIXED = (
    Size(
        "Transformer, mixed mechanisms",
        TransformerConfig(
            **_SMALL, **_HALF, attention=("autocorrelation", "residual-softmax", "softmax")
        ),
    ),
    Size(
        "Transformer, heads and patterns that share a layer",
        TransformerConfig(
            **_SMALL, **_HALF, attention=read_notation("local:1,linear:1;local+global;softmax")
        ),
    ),
)


_MECHANISMS = [name for name, config in MECHANISMS.items() if not config.made_of_others]


def _medleys() -> Iterator[Size]:
    """Transformers whose encoder layers have all mechanisms, several in each model."""
    for start in range(0, len(_MECHANISMS), 6):
        some = _MECHANISMS[start : start + 6]
        own: dict[str, Any] = {"encoder_layers": len(some), "attention": (*some, "softmax")}
        yield Size(f"Transformer, {', '.join(some)}", TransformerConfig(**_SMALL | _HALF | own))


def _causal() -> Iterator[Size]:
    """Transformers whose decoder layers have all causal mechanisms, several in each model."""
    names = [name for name in _MECHANISMS if MECHANISMS[name].has_causal]
    names = [name for name in names if not MECHANISMS[name].hands_on]
    for start in range(0, len(names), 4):
        some = names[start : start + 4]
        stages = [stage for name in some for stage in (name, "softmax")]
        own = {"decoder_layers": len(some), "encoder_layers": 1, "attention": ("softmax", *stages)}
        config = TransformerConfig(**_SMALL | _HALF | own)
        yield Size(f"Transformer, causal {', '.join(some)}", config)


def _shallow(size: Size) -> Size:
    """With one layer: most of the time of the tests is tracing."""
    return replace(size, config=size.config.model_copy(update={"encoder_layers": 1}))


MEDLEYS = tuple(_medleys())
CAUSAL = tuple(_causal())
# Causal ones read long pasts in chunks.
_CHUNKED: dict[str, Any] = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "attention": ("softmax", "linear", "softmax", "performer", "softmax"),
}
# One of each architecture at least; tests look at these, and at models with every mechanism.
SAMPLE = (
    *map(_shallow, AUTOFORMERS[1:3]),
    Size("Transformer, causal linear, performer", TransformerConfig(**_SMALL | _HALF | _CHUNKED)),
    # Each of its layers passes its scores to the next one.
    PATCHTSTS[5],
    DLINEARS[1],
    DLINEARS[3],
    _shallow(ITRANSFORMERS[0]),
    _shallow(TIMEXERS[0]),
    # Its own norm of windows, inside of the network.
    _shallow(COVARIATED[5]),
    TIDES[0],
    *map(_shallow, HUGGINGFACE_PATCHTSTS[:2]),
    _shallow(HEADED[2]),
    _shallow(HUGGINGFACE_TRANSFORMERS[2]),
    _shallow(HUGGINGFACE_AUTOFORMERS[0]),
)
VARIANTS = (
    *AUTOFORMERS,
    *TRANSFORMERS,
    *PATCHTSTS,
    *DLINEARS,
    *ITRANSFORMERS,
    *TIMEXERS,
    *HUGGINGFACE_PATCHTSTS,
    *HEADED,
    *HUGGINGFACE_TRANSFORMERS,
    *HUGGINGFACE_AUTOFORMERS,
    *TIDES,
    *COVARIATED,
    *MIXED,
    *MEDLEYS,
    *CAUSAL,
)
