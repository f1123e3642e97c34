"""What parts of a table say together."""

from foretell.client.answers import Notes, Notice, SeriesError, together


def part(name: str) -> Notes:
    return Notes(
        model="load",
        model_version="1",
        errors=[SeriesError(kind="short", message="too short", series=name)],
        warnings=[Notice(kind="rolled", message="of all"), Notice(kind="far", message=name)],
        rolled_from=4,
        filled={name: {"load": 2}},
        masked={name: {"wind": 1}},
        ill_conditioned=[name],
    )


def test_what_several_parts_say_alike_is_said_once() -> None:
    found = together([part("a"), part("b"), part("c")])
    assert [error.series for error in found.errors] == [*"abc"]
    assert [told.message for told in found.warnings] == ["of all", *"abc"]
    assert found.filled == {name: {"load": 2} for name in "abc"}
    assert found.masked == {name: {"wind": 1} for name in "abc"}
    assert found.ill_conditioned == [*"abc"]
    assert found.rolled_from == 4
