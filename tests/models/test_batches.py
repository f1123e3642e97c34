from __future__ import annotations

import pytest
import torch

from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.batches import LIMIT, are_recomputed, parts_that_fit, windows_that_fit
from foretell.models.forecaster import Forecaster
from tests.checkpoints import CONFIGS, HOURLY

LARGE = {"context": 336, "horizon": 96, "d_model": 128, "heads": 16, "d_ff": 256}


def patchtst(channels: int) -> Forecaster:
    with torch.device("meta"):
        return PatchTSTConfig(channels=channels, encoder_layers=3, **LARGE).build()


@pytest.mark.parametrize("name", CONFIGS)
def test_small_models_take_large_batches(name: str) -> None:
    model = CONFIGS[name].build()
    assert windows_that_fit(model) == 256
    assert windows_that_fit(model, explained=True) >= 64


@pytest.mark.parametrize("explained", [False, True])
def test_batches_shrink_with_channels(explained: bool) -> None:
    sizes = [windows_that_fit(patchtst(count), explained=explained) for count in (7, 21, 862)]
    assert 256 > sizes[0] > sizes[1] > sizes[2] == 1
    assert sizes[0] == pytest.approx(3 * sizes[1], abs=3)


def test_outputs_of_a_batch_stay_below_the_limit() -> None:
    model = patchtst(40)
    size = windows_that_fit(model, explained=True)
    # On the meta device nothing is computed.
    history = torch.empty(size, 336, 40, dtype=torch.float64, device="meta")
    forecast, attention, *_ = model.double().explain(history)
    parts = (part for seen in attention.values() for part in seen if part is not None)
    returned = [forecast, *parts]
    total = sum(part.numel() * part.element_size() for part in returned)
    assert LIMIT / 4 < total <= LIMIT


@pytest.mark.parametrize("family", [AutoformerConfig, TransformerConfig])
def test_channels_that_mix_hardly_change_the_batch_size(
    family: type[AutoformerConfig | TransformerConfig],
) -> None:
    with torch.device("meta"):
        few, many = (
            family(channels=count, encoder_layers=2, label=48, calendar=HOURLY, **LARGE).build()
            for count in (7, 70)
        )
    assert windows_that_fit(few) >= windows_that_fit(many) > windows_that_fit(few) / 2


def test_large_batches_are_recomputed() -> None:
    wide = patchtst(862)
    # One window takes 1.9 GB.
    assert not are_recomputed(wide, 1)
    assert are_recomputed(wide, 2)
    assert not are_recomputed(patchtst(7), 128)
    assert not any(are_recomputed(config.build(), 256) for config in CONFIGS.values())


def test_recomputation_runs_in_parts_that_fit() -> None:
    wide = patchtst(862)
    # A layer of one window takes 620 MB.
    assert [parts_that_fit(wide, windows) for windows in (1, 2, 4)] == [3, 5, 10]
    assert parts_that_fit(patchtst(1), 1) == 1
