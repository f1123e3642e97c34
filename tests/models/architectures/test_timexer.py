"""TimeXer, compared with the formulae of arXiv:2402.19072 in numpy.

`tests/importers/timexer.py` compares imported weights with NeuralForecast's code of the same parts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from foretell.bundle.covariates import Covariate, Covariates
from foretell.models.architectures.timexer import TimeXer, TimeXerConfig
from foretell.models.attention.evidence import Dense
from foretell.timeaxis.frequency import Frequency
from tests.checkpoints import HOURLY, randomised

SIZES: dict[str, Any] = {
    "channels": 4,
    "context": 26,
    "horizon": 5,
    "patch": 6,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
}
CASES: list[dict[str, Any]] = [
    {},
    {"calendar": HOURLY},
    {"calendar": HOURLY, "targets": (3,)},
    {"targets": (1, 2), "activation": "relu"},
    {"targets": (0, 2), "exogenous": "all", "window_norm": None},
    {"channels": 1, "exogenous": "others", "calendar": HOURLY},
    {"unpatched": "newest"},
]
Floats = NDArray[np.float64]


class Expected(NamedTuple):
    """Results of the formulas: a forecast, and the attention weights of each layer."""

    forecast: Floats
    own: list[Floats]
    cross: list[Floats]


def make(**changes: Any) -> TimeXer:
    model = randomised(TimeXerConfig.model_validate(SIZES | changes)).double()
    assert isinstance(model, TimeXer)
    return model


def windows(model: TimeXer) -> tuple[torch.Tensor, ...]:
    random = np.random.default_rng(5)
    history, *calendars = (part for part in model.example_inputs(3) if part is not None)
    drawn = random.normal(4, 3, history.shape), *(random.random(one.shape) for one in calendars)
    return tuple(map(torch.from_numpy, drawn))


def norm(x: Floats, weight: Floats, bias: Floats) -> Floats:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x: Floats) -> Floats:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def worked(model: TimeXer, history: Floats, marks: Floats | None) -> Expected:
    """Forecast one window `[context, channels]` with its marks `[context, features]`."""
    config, width = model.config, model.config.d_model
    state = {name: each.numpy() for name, each in model.state_dict().items()}

    def linear(x: Floats, name: str) -> Floats:
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    def normed(x: Floats, name: str) -> Floats:
        return norm(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def attend(query: Floats, source: Floats, name: str) -> tuple[Floats, Floats]:
        each, outputs, weights = width // config.heads, [], []
        for head in range(config.heads):
            part = slice(head * each, (head + 1) * each)
            q, k, v = (
                linear(x, f"{name}.{kind}")[:, part]
                for x, kind in ((query, "query"), (source, "key"), (source, "value"))
            )
            scores = np.exp(q @ k.T / math.sqrt(each))
            weights.append(scores / scores.sum(-1, keepdims=True))
            outputs.append(weights[-1] @ v)
        return linear(np.concatenate(outputs, -1), f"{name}.out"), np.stack(weights)

    centre, spread = np.zeros(config.channels), np.ones(config.channels)
    if config.window_norm == "mean":
        centre, spread = history.mean(0), np.sqrt(history.var(0) + 1e-5)
    scaled = (history - centre) / spread
    forecast = config.targets or tuple(range(config.channels))
    read = [i for i in range(config.channels) if config.exogenous == "all" or i not in forecast]
    series = [scaled[:, i] for i in read] + ([] if marks is None else list(marks.T))
    source = linear(np.stack(series), "series_embedding")
    count = config.context // config.patch
    patched = scaled if config.unpatched == "newest" else scaled[config.context % config.patch :]
    position = np.arange(count)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table = np.stack([np.sin(position), np.cos(position)], -1).reshape(count, width)
    tokens = []
    for place, channel in enumerate(forecast):
        patches = [patched[i * config.patch :][: config.patch, channel] for i in range(count)]
        embedded = linear(np.stack(patches), "patch_projection") + table
        tokens.append(np.vstack([embedded, state["global_tokens"][place]]))
    owns, crosses = [], []
    for layer in (f"layers.{i}" for i in range(config.encoder_layers)):
        found = [attend(x, x, f"{layer}.self_attention") for x in tokens]
        owns.append(np.stack([weights for _, weights in found]))
        tokens = [
            normed(x + mixed, f"{layer}.self_norm")
            for x, (mixed, _) in zip(tokens, found, strict=True)
        ]
        glob = np.stack([x[-1] for x in tokens])
        mixed, weights = attend(glob, source, f"{layer}.cross_attention")
        crosses.append(weights)
        glob = normed(glob + mixed, f"{layer}.cross_norm")
        tokens = [np.vstack([x[:-1], own]) for x, own in zip(tokens, glob, strict=True)]
        for i, x in enumerate(tokens):
            hidden = linear(x, f"{layer}.feed_forward.expand")
            active = gelu(hidden) if config.activation == "gelu" else np.maximum(hidden, 0)
            fed = linear(active, f"{layer}.feed_forward.contract")
            tokens[i] = normed(x + fed, f"{layer}.feed_forward_norm")
    # Feature by feature, each over all tokens.
    flat = np.stack([normed(x, "final_norm").T.ravel() for x in tokens])
    outputs = linear(flat, "projection").T
    chosen = list(forecast)
    return Expected(outputs * spread[chosen] + centre[chosen], owns, crosses)


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_forecast_and_attention_are_those_of_the_formulae(changes: dict[str, Any]) -> None:
    model = make(**changes)
    inputs = windows(model)
    with torch.inference_mode():
        found, plain = model.explain(*inputs), model(*inputs)
    torch.testing.assert_close(plain, found.forecast, atol=1e-12, rtol=0)
    for row in range(3):
        marks = inputs[1][row].numpy() if len(inputs) > 1 else None
        expected = worked(model, inputs[0][row].numpy(), marks)
        # Positions are rounded to float32.
        np.testing.assert_allclose(found.forecast[row], expected.forecast, rtol=0, atol=1e-6)
        for layer in range(2):
            for name, maps in (("self", expected.own), ("cross", expected.cross)):
                seen = found.attention[f"encoder.{layer}.{name}"]
                assert isinstance(seen, Dense)
                np.testing.assert_allclose(seen.weights[row], maps[layer], rtol=0, atol=1e-6)


def test_axes_name_the_channels_that_are_forecast_and_read() -> None:
    own, cross, *_ = make(targets=(1, 3), calendar=HOURLY).stages
    assert (own.places, own.per_channel, cross.per_channel) == ((1, 3), True, False)
    assert (own.key.of, own.key.length, own.key.padding) == ("patches", 5, 1)
    assert (own.key.start, own.key.stride, own.key.width) == (-24, 6, 6)
    assert make(unpatched="newest").stages[0].key.start == -26
    assert (cross.query.of, cross.query.places) == ("channels", (1, 3))
    assert (cross.key.length, cross.key.padding, cross.key.places) == (6, 4, (0, 2))
    whole = make().stages
    assert [(each.places, each.query.places, each.key.places) for each in whole] == (
        [(None, None, None)] * 4
    )
    alone = make(channels=1, exogenous="others", calendar=HOURLY).stages[1]
    assert (alone.key.of, alone.key.length) == ("landmarks", 4)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [[1, 1, 1, 1]] * 4),
        ({"targets": (0, 2)}, [[1, 0], [1, 1], [0, 1], [1, 1]]),
        ({"targets": (0, 2), "exogenous": "all"}, [[1, 1]] * 4),
        ({"exogenous": "others", "calendar": HOURLY}, np.eye(4).tolist()),
    ],
    ids=str,
)
def test_channels_that_change_a_forecast(
    changes: dict[str, Any], expected: list[list[int]]
) -> None:
    model = make(**changes)
    history, *calendars = windows(model)
    before = model(history, *calendars)
    for channel, moves in enumerate(expected):
        other = history.clone()
        other[:, 3:, channel] += torch.arange(23)
        change = (model(other, *calendars) - before).abs().amax(dim=(0, 1))
        assert (change > 1e-6).tolist() == [bool(each) for each in moves]


def test_calendar_changes_the_forecast() -> None:
    model = make(calendar=HOURLY)
    history, past, future = windows(model)
    assert not torch.allclose(model(history, past, future), model(history, past + 1, future))
    assert TimeXerConfig.calendar_for(Frequency.parse("h"), {}) == HOURLY
    assert TimeXerConfig.calendar_for(Frequency.parse("YS"), {}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 27}, "patch: 27 steps are more than the context 26"),
        ({"exogenous": "others"}, "exogenous: no channels are left to read, no calendar"),
        ({"static_tokens": True}, "static_tokens: there are no static covariates"),
        ({"attention": "autocorrelation"}, "autocorrelation cannot be within channels"),
        ({"attention": "residual-softmax"}, "residual-softmax is for whole layers of an encoder"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TimeXerConfig.model_validate(SIZES | changes)


def test_patches_end_with_the_newest_row() -> None:
    changes: dict[str, Any] = {"channels": 1, "exogenous": "others", "calendar": HOURLY}
    for unpatched, moves in (("oldest", True), ("newest", False)):
        model = make(**changes, window_norm=None, unpatched=unpatched)
        history, *calendars = windows(model)
        other = history.clone()
        other[:, -1] += 1
        assert torch.equal(model(history, *calendars), model(other, *calendars)) is not moves


def test_static_tokens_alone_are_read() -> None:
    static = (Covariate(name="size"), Covariate(name="open", type="boolean"))
    changes: dict[str, Any] = {"covariates": Covariates(static=static), "static_tokens": True}
    model = make(**changes, channels=1, exogenous="others")
    history = torch.ones(1, 26, 1).double().cumsum(dim=1)
    codes = torch.tensor([[2.0, 0.0]]).double()
    rest = (None, None, None, None)
    assert not torch.equal(model(history, *rest, codes), model(history, *rest, codes + 1))


def test_exogenous_channels_are_all_or_those_that_are_not_forecast() -> None:
    assert make().config.exogenous == make(targets=(0, 1, 2, 3)).config.exogenous == "all"
    assert make(targets=(2,)).config.exogenous_channels == (0, 1, 3)
