"""Models that read several channels and forecast some, whatever the architecture."""

from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.models.forecaster import ARCHITECTURES, Forecaster, Inputs
from tests.checkpoints import SMALL, randomised

SIZES = {name: SMALL[name] for name in ("channels", "context", "horizon")}
COLUMNS = [0, 2]


def make(architecture: str, **fields: object) -> Forecaster:
    return randomised(ARCHITECTURES[architecture].model_validate({**SIZES, **fields}))


def history() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 48, 3) * 3 + 5


@pytest.mark.parametrize("norm", [None, "mean"])
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_the_targets_of_what_the_model_of_all_channels_forecasts(
    architecture: str, norm: str | None
) -> None:
    whole = make(architecture, window_norm=norm)
    some = make(architecture, window_norm=norm, targets=COLUMNS)
    some.load_state_dict(whole.state_dict())
    windows, future = history(), torch.randn(2, 12, 3)
    expected = whole(windows)[..., COLUMNS]
    torch.testing.assert_close(some(windows), expected)
    torch.testing.assert_close(some.explain(windows).forecast, expected)
    torch.testing.assert_close(some.double()(windows.double()).float(), expected)
    some.float()
    learnt, _ = some.forecast_to_learn(Inputs(windows), future, 0.0)
    torch.testing.assert_close(learnt, expected)


@pytest.mark.parametrize("targets", [(), (3,), (-1,), (1, 0), (1, 1)])
def test_places_of_channels_in_their_order(targets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="targets"):
        make("dlinear", targets=targets)


def test_a_decoder_that_reads_its_forecasts_forecasts_all_channels() -> None:
    fields: dict[str, Any] = {"decoding": "autoregressive", "decoding_chunk": 4, "label": 12}
    assert make("transformer", **fields).config.targets is None
    with pytest.raises(ValueError, match="autoregressive decoding reads what it forecasts"):
        make("transformer", targets=(0,), **fields)
