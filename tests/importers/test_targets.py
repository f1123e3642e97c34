"""The published `MS`: all channels are read, and the last one is what is forecast."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from foretell.importers.convert import Request, import_checkpoint
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.forecaster import Forecaster
from tests.importers import published
from tests.importers.test_convert import FORMS, forecast, refused, request, without

MOVED = ("load", "OT", "wind")


def asked(folder: Path, form: str, **arguments: str) -> Request:
    one = request(folder, form)
    return replace(one, arguments={**one.arguments, "features": "MS", "target": "wind"} | arguments)


def f_dim(model: Forecaster) -> Tensor:
    """What the published code takes of a forecast: `outputs[:, -pred_len:, f_dim:]`."""
    with torch.inference_mode():
        outputs: Tensor = model(*published.inputs(model))
    return outputs[:, -model.config.horizon :, -1:]


@pytest.mark.parametrize("form", FORMS)
def test_the_last_channel_is_forecast(tmp_path: Path, form: str) -> None:
    imported = import_checkpoint(asked(tmp_path, form))
    info = imported.info
    # Custom data have their target moved to the end.
    assert (info.channels, info.targets) == (MOVED, ("wind",))
    assert len(info.scaler.mean) == 3
    torch.testing.assert_close(forecast(imported), f_dim(published.make(form)), atol=1e-6, rtol=0)
    assert imported.arguments["features"].value == "MS"
    assert info.test is not None
    assert "--target" in refused(without(asked(tmp_path, form), "target"))


@pytest.mark.parametrize("form", ["autoformer", "transformer"])
def test_one_row_of_outputs(tmp_path: Path, form: str) -> None:
    """With c_out 1 the published code adds that row to the trends of all channels, or to none."""
    model = published.make(form)
    state = published.publish(model, published.layout("tslib", form))
    single = {
        key: each[1:2] if "projection." in key and len(each) == 3 else each
        for key, each in state.items()
    }
    assert sum(len(each) != len(state[key]) for key, each in single.items()) >= 2
    one = asked(tmp_path, form)
    torch.save(single, one.file)
    # As published: the projections of one output, and broadcasting.
    model.projection = _row(model.projection)
    if isinstance(model.config, AutoformerConfig):
        for layer in model.decoder_layers:
            trends = layer.trend_projection.convolution
            trends.weight = nn.Parameter(trends.weight[1:2])
    expected = f_dim(model)
    for told in (one, without(one, "features")):
        imported = import_checkpoint(told)
        torch.testing.assert_close(forecast(imported), expected, atol=1e-6, rtol=0)
        assert imported.info.targets == ("wind",)


def _row(linear: nn.Linear) -> nn.Linear:
    row = nn.Linear(linear.in_features, 1)
    row.load_state_dict({"weight": linear.weight[1:2], "bias": linear.bias[1:2]})
    return row


def test_channels_by_name_and_a_split_that_moves_nothing(tmp_path: Path) -> None:
    named = replace(asked(tmp_path, "patchtst"), channels=("wind", "OT", "load"))
    assert import_checkpoint(without(named, "target")).info.targets == ("load",)
    ett = asked(tmp_path, "patchtst", split="ett_hour")
    published.write_csv(tmp_path, 14400)
    assert import_checkpoint(without(ett, "target")).info.targets == ("OT",)


@pytest.mark.parametrize(
    ("rows", "channels", "given"),
    [(400, ("wind", "OT", "load"), {}), (14400, None, {"split": "ett_hour"})],
)
def test_a_target_that_is_not_the_last_channel(
    tmp_path: Path, rows: int, channels: tuple[str, ...] | None, given: dict[str, str]
) -> None:
    """There the published code does not move it, and forecasts another channel."""
    one = replace(asked(tmp_path, "patchtst", **given), channels=channels)
    published.write_csv(tmp_path, rows)
    assert "--target wind: the model forecasts its last channel, which is" in refused(one)


def test_the_target_alone_is_a_model_of_one_channel(tmp_path: Path) -> None:
    form = published.layout("tslib", "transformer")
    one = asked(tmp_path, "transformer", features="S")
    published.save(tmp_path, published.make("transformer", channels=1), form)
    imported = import_checkpoint(one)
    assert (imported.info.channels, imported.info.config.targets) == (("wind",), None)
    whole = published.make("transformer", channels=1)
    torch.testing.assert_close(forecast(imported), f_dim(whole), atol=1e-6, rtol=0)
