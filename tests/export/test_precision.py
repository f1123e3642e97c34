import pytest
import torch
from torch import nn

from foretell.export.errors import ExportError
from foretell.export.precision import DTYPES, Reduced, reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attention.evidence import Sparse
from foretell.models.layers.feed_forward import FeedForward
from tests.checkpoints import CONFIGS, SMALL, randomised
from tests.export.rewrites.test_inference_form import inputs

HALVES = ("float16", "bfloat16")
ATTENTIONS = (TimeFirstAttention, MergedAttention)


def reduced(config, precision):
    form = inference_form(randomised(config))
    reduce_precision(form, precision)
    return form


def names(form, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> set[str]:
    """Paths of the modules that were reduced, by what they are."""
    return {
        name
        for name, module in form.named_modules()
        if isinstance(module, Reduced) and isinstance(module.module, kind)
    }


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("name", CONFIGS)
def test_differs_by_a_few_roundings(name, precision):
    config = CONFIGS[name]
    given = [part.float() for part in inputs(config)]
    with torch.inference_mode():
        expected = inference_form(randomised(config)).explain(*given)
        found = reduced(config, precision).explain(*given)
    error = (found.forecast - expected.forecast).abs().max() / expected.forecast.abs().max()
    assert 0 < error < 2 * torch.finfo(DTYPES[precision]).eps
    assert found.forecast.dtype == torch.float32
    for attention in found.attention.values():
        types = {part.dtype for part in attention if part is not None}
        assert types <= {torch.float32, torch.int64}


@pytest.mark.parametrize("precision", HALVES)
def test_weights_are_stored_in_half_precision(precision):
    form = reduced(CONFIGS["autoformer"], precision)
    halved = {name for name, w in form.state_dict().items() if w.dtype == DTYPES[precision]}
    assert halved == {name for name in form.state_dict() if ".module." in name}
    assert any("feed_forward" in name for name in halved)
    assert any("self_attention.value" in name for name in halved)


def test_float32_changes_nothing():
    form = reduced(CONFIGS["transformer"], "float32")
    assert not names(form, nn.Module)


@pytest.mark.parametrize("precision", HALVES)
def test_a_model_with_nothing_to_reduce_is_refused(precision):
    sizes = {name: SMALL[name] for name in ("channels", "context", "horizon")}
    form = inference_form(randomised(DLinearConfig(**sizes)))
    with pytest.raises(ExportError, match=f"precision: .*no part that {precision} is for"):
        reduce_precision(form, precision)


def test_the_correlation_stays_in_float32():
    form = reduced(CONFIGS["autoformer"], "float16")
    assert names(form, nn.Linear) == {
        "encoder_layers.0.attention.value",
        "decoder_layers.0.self_attention.value",
        "decoder_layers.0.cross_attention.value",
    }
    assert not names(form, ATTENTIONS)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (
            CONFIGS["transformer"].model_copy(update={"encoder_layers": 2}),
            {"encoder_layers.0.attention", "decoder_layers.0.self_attention"},
        ),
        (CONFIGS["patchtst"], set()),
        (PatchTSTConfig(**SMALL | {"heads": 8}), set()),
        (
            PatchTSTConfig(**SMALL | {"encoder_layers": 2}, window_norm=None),
            {"branches.0.layers.0.attention"},
        ),
    ],
)
def test_attention_that_reads_unbounded_tokens_stays_in_float32(config, kept):
    form = inference_form(randomised(config))
    attentions = {n for n, m in form.named_modules() if isinstance(m, ATTENTIONS)}
    networks = {n for n, m in form.named_modules() if isinstance(m, FeedForward)}
    assert kept <= attentions
    form = reduced(config, "bfloat16")
    assert names(form, ATTENTIONS) == attentions - kept
    assert names(form, FeedForward) == networks


def test_a_history_far_from_the_data_does_not_overflow():
    config = CONFIGS["transformer"]
    history, *calendars = (part.float() for part in inputs(config))
    with torch.inference_mode():
        assert reduced(config, "float16")(history + 10_000, *calendars).isfinite().all()


def test_indices_stay_whole_numbers():
    class Chooses(nn.Module):
        def forward(self, tokens: torch.Tensor, keys: torch.Tensor) -> Sparse:
            return Sparse(keys, tokens)

    keys = torch.tensor([4097])
    found = Reduced(Chooses(), torch.float16)(torch.ones(1), keys)
    assert torch.equal(found.keys, keys)
    assert found.weights.dtype == torch.float32
