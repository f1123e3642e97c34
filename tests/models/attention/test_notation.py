import pytest

from foretell.models.attention.notation import read_notation


def mixture(**groups: int) -> dict[str, object]:
    return {
        "mechanism": "mixture",
        "groups": [{"heads": n, "attention": {"mechanism": name}} for name, n in groups.items()],
    }


def union(*names: str) -> dict[str, object]:
    return {"mechanism": "union", "patterns": [{"mechanism": name} for name in names]}


def test_heads_may_join_some() -> None:
    groups = [
        {"heads": 2, "attention": union("a", "b")},
        {"heads": 1, "attention": union("c", "d")},
    ]
    assert read_notation("a+b:2,c + d:1") == [{"mechanism": "mixture", "groups": groups}]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("a", [{"mechanism": "a"}]),
        (" a , b ", [{"mechanism": "a"}, {"mechanism": "b"}]),
        ("a;b", [{"mechanism": "a"}, {"mechanism": "b"}]),
        ("a:2, b:4", [mixture(a=2, b=4)]),
        ("a:2,b:4;c", [mixture(a=2, b=4), {"mechanism": "c"}]),
        ("c;a:1,b:1", [{"mechanism": "c"}, mixture(a=1, b=1)]),
        ("a+b", [union("a", "b")]),
        ("a + b, c", [union("a", "b"), {"mechanism": "c"}]),
        ("a+b+c;d", [union("a", "b", "c"), {"mechanism": "d"}]),
    ],
)
def test_as_people_write_them(text: str, layers: list[object]) -> None:
    assert read_notation(text) == layers


@pytest.mark.parametrize(("text", "group"), [("a:2,b", "b"), ("a:x", "a:x"), ("a:-1", "a:-1")])
def test_heads_that_are_no_number(text: str, group: str) -> None:
    with pytest.raises(ValueError, match=f"expected heads after a colon in '{group}'$"):
        read_notation(text)


def test_one_group_is_no_mixture() -> None:
    with pytest.raises(ValueError, match="expected several groups of heads in 'a:2'"):
        read_notation("a:2;b")
