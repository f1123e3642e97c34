import pytest
import torch
from pydantic import ValidationError

from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.notation import read_notation
from foretell.models.config import ARCHITECTURES
from tests.models.attention.places import PLACES, multi_head

SITE = PLACES["encoder"]._replace(heads=4, d_model=8)


def mixture(**groups: int) -> dict[str, object]:
    return {
        "mechanism": "mixture",
        "groups": [{"heads": n, "attention": name} for name, n in groups.items()],
    }


def test_groups_of_one_mechanism_equal_that_mechanism() -> None:
    """Heads are independent: a layer of four is the sum of one and three of its heads."""
    torch.manual_seed(0)
    whole = multi_head(8, 4).eval()
    config = MECHANISMS.read(
        {"mechanism": "mixture", "groups": [{"heads": n, "attention": "softmax"} for n in (1, 3)]}
    )
    mixed = config.build(SITE).eval()
    for group, rows in zip(mixed.groups.values(), (slice(2), slice(2, 8)), strict=True):
        for name in ("query", "key", "value"):
            ours, theirs = getattr(group, name), getattr(whole, name)
            ours.weight.data, ours.bias.data = theirs.weight[rows], theirs.bias[rows]
        group.out.weight.data, group.out.bias.data = whole.out.weight[:, rows], whole.out.bias / 2
    tokens = torch.randn(2, 24, 8)
    found, expected = (each(tokens, tokens, explain=True) for each in (mixed, whole))
    torch.testing.assert_close(found.output, expected.output)
    maps = [one.weights for one in found.evidence.by_name.values()]
    torch.testing.assert_close(torch.cat(maps, dim=1), expected.evidence.weights)


def test_each_group_is_a_stage() -> None:
    stages = MECHANISMS.read(mixture(softmax=1, autocorrelation=3)).describe("a", SITE)
    assert [(stage.name, stage.mechanism, stage.heads) for stage in stages] == [
        ("a.0", "softmax", 1),
        ("a.1", "autocorrelation", 3),
    ]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (mixture(softmax=1, autocorrelation=2), "the mixture has 3 heads, the layer 4 .at enc"),
        (mixture(softmax=4), "at least 2 items"),
        (mixture(softmax=2, **{"residual-softmax": 2}), "residual-softmax is for whole layers"),
        (mixture(softmax=2, autocorrelation=2), "no causal form.* .at decoder.0.self"),
    ],
)
def test_invalid_mixtures_are_refused(attention: object, message: str) -> None:
    sizes = {"channels": 2, "context": 24, "horizon": 4, "heads": 4}
    with pytest.raises(ValidationError, match=message):
        ARCHITECTURES.read({"architecture": "transformer", "attention": attention, **sizes})


def test_explanation_has_a_map_for_each_group() -> None:
    attention = [mixture(softmax=1, autocorrelation=3), "softmax", "softmax"]
    sizes = {"channels": 2, "context": 24, "horizon": 4, "heads": 4}
    model = ARCHITECTURES.read({"architecture": "transformer", "attention": attention, **sizes})
    found = model.build().eval().explain(torch.randn(3, 24, 2)).attention
    assert list(found) == [
        "encoder.0.self.0",
        "encoder.0.self.1",
        "encoder.1.self",
        "decoder.0.self",
        "decoder.0.cross",
    ]
    assert found["encoder.0.self.0"].weights.shape == (3, 1, 24, 24)


def test_channels_get_an_axis_in_every_group() -> None:
    sizes = {"channels": 2, "context": 24, "horizon": 4, "heads": 4, "patch": 8, "stride": 4}
    groups = [{"heads": n, "attention": "softmax"} for n in (1, 3)]
    attention = {"mechanism": "mixture", "groups": groups}
    fields = {"architecture": "patchtst", "attention": attention, **sizes}
    found = ARCHITECTURES.read(fields).build().eval().explain(torch.randn(3, 24, 2)).attention
    assert found["encoder.0.self.1"].weights.shape == (3, 2, 3, 6, 6)


def noted(**groups: int) -> dict[str, object]:
    return {
        "mechanism": "mixture",
        "groups": [{"heads": n, "attention": {"mechanism": name}} for name, n in groups.items()],
    }


def union(*names: str) -> dict[str, object]:
    return {"mechanism": "union", "patterns": [{"mechanism": name} for name in names]}


JOINED = [{"heads": 2, "attention": union("a", "b")}, {"heads": 1, "attention": union("c", "d")}]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("a", [{"mechanism": "a"}]),
        (" a , b ", [{"mechanism": "a"}, {"mechanism": "b"}]),
        ("a;b", [{"mechanism": "a"}, {"mechanism": "b"}]),
        ("a:2, b:4", [noted(a=2, b=4)]),
        ("a:2,b:4;c", [noted(a=2, b=4), {"mechanism": "c"}]),
        ("c;a:1,b:1", [{"mechanism": "c"}, noted(a=1, b=1)]),
        ("a+b", [union("a", "b")]),
        ("a+b:2,c + d:1", [{"mechanism": "mixture", "groups": JOINED}]),
        ("a + b, c", [union("a", "b"), {"mechanism": "c"}]),
        ("a+b+c;d", [union("a", "b", "c"), {"mechanism": "d"}]),
    ],
)
def test_notation_of_mixtures_is_parsed(text: str, layers: list[object]) -> None:
    assert read_notation(text) == layers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, f"expected heads after a colon in '{group}'$")
            for text, group in (("a:2,b", "b"), ("a:x", "a:x"), ("a:-1", "a:-1"))
        ),
        ("a:2;b", "expected several groups of heads in 'a:2'"),
    ],
)
def test_notation_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_notation(text)
