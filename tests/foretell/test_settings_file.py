import pytest
import yaml

from foretell.settings_file import load


def test_what_it_holds() -> None:
    text = "a: 1\nb: &same {c: [x, 2]}\nd: *same\n"
    assert load(text) == {"a": 1, "b": {"c": ["x", 2]}, "d": {"c": ["x", 2]}}


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "b: {c: 1, c: 1}\n"])
def test_what_is_given_twice(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"(?s)[ac] is given twice.*line \d"):
        load(text)
