import pytest

from foretell.models.importers.layouts import LAYOUTS, Layout
from tests.models.importers import published


def label(layout: Layout) -> str:
    return f"{layout.title} {dict(layout.facts)}"


@pytest.mark.parametrize("layout", LAYOUTS, ids=label)
def test_every_key_translates_there_and_back(layout: Layout) -> None:
    numbers = {"e_layers": 11, "d_layers": 2, "enc_in": 3}
    names = set()
    for row in layout.rows:
        key = row.theirs.format(**numbers)
        match = layout.find(key)
        assert match is not None
        assert match.row is row
        name = layout.translate(key)
        if row.ours is None:
            assert name is None
            continue
        assert name is not None
        assert layout.original(name) == (key, row)
        assert name not in names
        names.add(name)


def test_keys_of_autoformer() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    assert layout.translate("encoder.attn_layers.1.attention.query_projection.weight") == (
        "encoder_layers.1.attention.query.weight"
    )
    assert layout.translate("decoder.layers.0.projection.weight") == (
        "decoder_layers.0.trend_projection.convolution.weight"
    )
    assert layout.translate("enc_embedding.position_embedding.pe") is None


def test_keys_of_patchtst_of_its_paper() -> None:
    layout = published.layout("patchtst", "patchtst", decomposition=1, individual=1, norm="batch")
    assert layout.translate("model_trend.head.linears.3.bias") == "branches.1.heads.3.bias"
    assert (
        layout.translate("model_res.backbone.encoder.layers.0.norm_ffn.1.running_var")
        == "branches.0.layers.0.feed_forward_norm.norm.running_var"
    )


@pytest.mark.parametrize("key", ["", "encoder", "encoder.attn_layers.x.conv1.weight", "fc.weight"])
def test_unknown_key(key: str) -> None:
    layout = published.layout("tslib", "transformer")
    assert layout.find(key) is None
    assert layout.translate(key) is None


def test_unknown_name() -> None:
    with pytest.raises(KeyError):
        published.layout("tslib", "transformer").original("other.weight")
