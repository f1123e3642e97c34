import pytest
import torch
from torch import nn

from foretell.export.rewrites import composition, inference_form
from foretell.export.rewrites.lookup import Call, all_of, rewrites
from foretell.models.attention.auto_correlation import AutoCorrelation
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from tests.checkpoints import CONFIGS, HOURLY, SMALL, randomised
from tests.export.rewrites.test_inference_form import inputs
from tests.models.attention.places import multi_head


class Halved(MultiHeadAttention):
    """A subclass with another result than its base, which has a faster form."""

    def forward(self, *given: object, **options: object) -> Attended:
        attended = super().forward(*given, **options)  # type: ignore[arg-type]
        return attended._replace(output=attended.output / 2)


def with_halved(name: str) -> Forecaster:
    model = randomised(CONFIGS[name])
    for module in model.modules():
        if type(module) is MultiHeadAttention:
            module.__class__ = Halved
    return model


@pytest.mark.parametrize("name", ["patchtst", "transformer"])
def test_subclass_is_not_rewritten(name, float64, equal):
    model = with_halved(name)
    form = inference_form(model)
    given = inputs(model.config)
    with torch.inference_mode():
        equal(form(*given), model(*given))
    rewritten, plain = composition(model, form)
    assert "Halved" in plain
    assert "EncoderLayer" in plain
    # Modules around it still have a faster form.
    assert ("InstanceNorm" if name == "patchtst" else "SeriesEmbedding") in rewritten


def test_parts_of_an_architecture_without_a_form_are_rewritten(float64, equal):
    layers = ["autocorrelation", "residual-softmax", "softmax"]
    sizes = {**SMALL, "encoder_layers": 2, "attention": layers}
    config = ARCHITECTURES.read({"architecture": "transformer", "calendar": HOURLY, **sizes})
    model = randomised(config)
    form = inference_form(model)
    given = inputs(config)
    with torch.inference_mode():
        expected, found = model.explain(*given), form.explain(*given)
    equal(found.forecast, expected.forecast)
    for name, evidence in expected.attention.items():
        for part, wanted in evidence._asdict().items():
            if wanted is not None:
                equal(getattr(found.attention[name], part), wanted)
    rewritten, plain = composition(model, form)
    assert {"AutoCorrelation", "MultiHeadAttention", "SeriesEmbedding"} <= set(rewritten)
    assert {"EncoderLayer", "DecoderLayer", "FeedForward"} <= set(plain)


def test_modules_of_torch_have_no_form():
    model = randomised(CONFIGS["patchtst"])
    form = inference_form(model)
    assert composition(model, form)[1] == ("EncoderLayer", "FeedForward")
    assert composition(model, model)[0] == ()


def test_form_is_looked_up_by_exact_type():
    layer, other = nn.Module(), nn.Module()
    layer.attention, other.attention = multi_head(4, 2), multi_head(4, 2)
    other.attention.__class__ = Halved
    assert all_of([layer], "attention", MultiHeadAttention)
    assert not all_of([layer, other], "attention", MultiHeadAttention)
    assert not all_of([layer], "attention", AutoCorrelation)


def test_a_second_form_of_a_type_is_refused():
    with pytest.raises(AssertionError):

        @rewrites(MultiHeadAttention)
        def again(plain: nn.Module, _: Call) -> None: ...


def test_module_that_is_called_in_two_ways_is_not_rewritten():
    model = randomised(CONFIGS["transformer"])
    # Its decoder reads other steps than its encoder.
    model.encoder_layers[0].attention = model.decoder_layers[0].cross_attention
    model.encoder_layers[0].attention.__class__ = MultiHeadAttention
    model.decoder_layers[0].self_attention.__class__ = Halved
    form = inference_form(model)
    given = inputs(model.config)
    given = tuple(part if part is None else part.float() for part in given)
    with torch.inference_mode():
        torch.testing.assert_close(form(*given), model(*given))
    assert "MultiHeadAttention" in composition(model, form)[1]
