import re

import pytest

from foretell.importers.layouts import Layout, Row, rows
from foretell.importers.registry import CODE_BASES
from tests.importers import published


def label(layout: Layout) -> str:
    return f"{layout.title} {dict(layout.arguments)}"


LAYOUTS = sorted(
    {
        layout
        for code in CODE_BASES.values()
        for each in code.architectures
        for layout in each.layouts
    },
    key=label,
)


def placeholders(template: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", template)


@pytest.mark.parametrize("layout", LAYOUTS, ids=label)
def test_every_key_translates_there_and_back(layout: Layout) -> None:
    numbers = dict.fromkeys(layout.sizes, 11)
    names = set()
    for row in layout.rows:
        key = row.theirs.format(**numbers)
        assert layout.find(key) == (row, dict.fromkeys(placeholders(row.theirs), 11))
        assert layout.ignores(key) == (row.ours is None)
        if row.ours is not None:
            name = row.ours.format(**numbers)
            assert layout.original(name) == (key, row)
            assert name not in names
            names.add(name)


@pytest.mark.parametrize("key", ["", "encoder", "encoder.attn_layers.x.conv1.weight", "fc.weight"])
def test_unknown_key(key: str) -> None:
    layout = published.layout("tslib", "transformer")
    assert layout.find(key) is None
    assert not layout.ignores(key)


def test_unknown_name() -> None:
    with pytest.raises(KeyError):
        published.layout("tslib", "transformer").original("other.weight")


def test_rows_of_a_table() -> None:
    table = """
    conv1.*      expand.*  d_ff d_model 1
    norm.1.**    norm.**   d_model
    scale        -
    W_pos        positions patches d_model
    """
    found = rows(table, "layers.{e_layers}.", "ours.")
    assert found[:2] == (
        Row("layers.{e_layers}.conv1.weight", "ours.expand.weight", "d_ff d_model 1"),
        Row("layers.{e_layers}.conv1.bias", "ours.expand.bias", "d_ff"),
    )
    norm = [(row.theirs.rsplit(".", 1)[1], row.shape) for row in found[2:7]]
    assert norm == [
        ("weight", "d_model"),
        ("bias", "d_model"),
        ("running_mean", "d_model"),
        ("running_var", "d_model"),
        ("num_batches_tracked", ""),
    ]
    assert found[7:] == (
        Row("layers.{e_layers}.scale", None),
        Row("layers.{e_layers}.W_pos", "ours.positions", "patches d_model"),
    )
