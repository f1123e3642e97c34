from __future__ import annotations

import pytest

from foretell.service.errors import (
    InvalidInputError,
    NotReadyError,
    ServiceError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.versions.policy import Policy
from foretell.service.versions.table import Entry, Slot, State, Table
from tests.service.served import Served


def table(policy: Policy | None = None, **slots: Slot) -> Table:
    """A table of slots, each under `name_version`."""
    table = Table(policy or Policy())
    for key, slot in slots.items():
        name, version = key.split("_")
        table.put(name, version, slot)
    return table


def loaded(name: str = "one", version: str = "1", failure: str | None = None) -> Slot:
    model = Served(name, version)
    model.failure = failure
    return Slot(model, stamp=1)


REFUSED = Slot(refused="sha256 differs", stamp=1)


def test_the_newest_loaded_version_answers() -> None:
    found = table(one_2=loaded(), one_9=loaded(), one_10=loaded(version="10"), one_11=REFUSED)
    assert found.loaded("one") == ["2", "9", "10"]
    for reference in (None, "one", "one@10"):
        assert found.find(reference).version == "10"
    assert found.find("one@9") is found.get("one", "9").model


def test_or_the_pinned_one() -> None:
    pinned = table(Policy("all", {"one": "9"}), one_9=loaded(version="9"), one_10=loaded())
    assert pinned.find("one").version == "9"
    assert pinned.ready
    pinned.put("one", "9", Slot())
    with pytest.raises(NotReadyError, match="one is not loaded"):
        pinned.find("one")
    pinned.find("one@10")
    assert pinned.defaults == []
    assert not pinned.ready


def test_a_pin_to_nothing_is_not_ready() -> None:
    pinned = table(Policy("all", {"two": "3"}), one_1=loaded())
    assert not pinned.ready
    assert pinned.report() == {"one@1": "ready", "two@3": "pinned, and not loaded"}


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (None, InvalidInputError, "required when several models are served: one, two"),
        ("three", UnknownModelError, "no model 'three'; served: one, two"),
        ("", UnknownModelError, "no model ''"),
        ("../one", UnknownModelError, "no model '../one'"),
        ("one/1", UnknownModelError, "no model 'one/1'"),
        ("one@2", UnknownVersionError, "one has no version '2'; served: 1"),
        ("one@", UnknownVersionError, "one has no version ''"),
        ("one@1@1", UnknownVersionError, "one has no version '1@1'"),
        ("two@2", NotReadyError, "two@2 is not loaded; /readyz says why"),
    ],
)
def test_what_is_not_served(reference: str | None, error: type[ServiceError], message: str) -> None:
    served = table(one_1=loaded("one"), two_1=loaded("two"), two_2=REFUSED)
    with pytest.raises(error, match=message) as raised:
        served.find(reference)
    assert raised.value.param == "model"


def test_nothing_at_all() -> None:
    with pytest.raises(NotReadyError, match="no model is loaded"):
        table().find(None)
    assert not table().ready


@pytest.mark.parametrize(
    ("slot", "state", "reason"),
    [
        (loaded(), State.READY, ""),
        (loaded(failure="CUDA failure 700"), State.UNAVAILABLE, "CUDA failure 700"),
        (Slot(Served("one", "1"), refused="bad"), State.READY, "bad"),
        (REFUSED, State.UNAVAILABLE, "sha256 differs"),
        (Slot(), State.UNAVAILABLE, "not loaded"),
        (Slot(busy=State.LOADING), State.LOADING, ""),
        (Slot(busy=State.UNLOADING), State.UNLOADING, ""),
    ],
)
def test_the_index_tells_the_state(slot: Slot, state: State, reason: str) -> None:
    assert slot.entry("one", "1") == Entry("one", "1", state, reason)


@pytest.mark.parametrize(
    ("slots", "ready"),
    [
        ({"one_1": loaded()}, True),
        ({"one_1": loaded(), "one_2": REFUSED}, True),
        ({"one_1": loaded(), "two_1": REFUSED}, False),
        ({"one_1": loaded(), "two_1": Slot(refused="bad")}, True),
        ({"one_1": loaded(), "two_1": Slot()}, True),
        ({"one_1": loaded(), "two_1": Slot(busy=State.LOADING)}, True),
        ({"one_1": loaded(), "two_1": loaded("two", failure="lost")}, False),
        ({"one_1": Slot()}, False),
    ],
)
def test_readiness(slots: dict[str, Slot], ready: bool) -> None:
    assert table(**slots).ready is ready


def test_the_report() -> None:
    slots = {"one_1": loaded(), "one_2": REFUSED, "two_1": Slot(busy=State.LOADING)}
    assert table(**slots).report() == {
        "one@1": "ready",
        "one@2": "sha256 differs",
        "two@1": "loading",
    }


def test_a_slot_that_is_in_use_again_is_left_alone() -> None:
    leaving = Slot(busy=State.UNLOADING)
    used = table(one_1=leaving, one_2=leaving)
    again = loaded()
    used.put("one", "1", again)
    assert not used.leave("one", "1", leaving, None)
    assert used.get("one", "1") is again
    assert used.leave("one", "2", leaving, Slot())
    assert used.get("one", "2") == Slot()
    assert used.leave("one", "1", again, None)
    assert [version for _, version, _ in used] == ["2"]
