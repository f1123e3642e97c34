"""Errors of the series that changed last."""

from __future__ import annotations

import numpy as np

from foretell.service.engine.learned import Key
from foretell.service.ledger.recent_errors import Errors, RecentErrors


def key(name: str, namespace: str = "", version: str = "1") -> Key:
    return Key("m", version, namespace, name)


def errors_of(value: float = 0.0, origins: int = 2) -> Errors:
    return Errors(np.full((origins, 3, 1), value), np.arange(origins), (1, 1))


def test_each_namespace_of_a_version_has_its_own() -> None:
    recent = RecentErrors(10**6, 10)
    for each in (key("a"), key("b"), key("a", "x"), key("a", version="2")):
        recent.put(each, errors_of())
    assert [*recent.of_namespace(key("c"))] == [key("a"), key("b")]
    assert [*recent.of_namespace(key("c", "x"))] == [key("a", "x")]
    assert [*recent.of_namespace(key("c", "y"))] == []


def test_series_that_changed_longest_ago_make_room() -> None:
    recent = RecentErrors(10**6, 2)
    for name in ("a", "b", "a", "c"):
        recent.put(key(name), errors_of())
        recent.put(key(name, "x"), errors_of())
    assert [*recent] == [key("a"), key("a", "x"), key("c"), key("c", "x")]


def test_bytes_of_all_namespaces_are_bounded() -> None:
    recent = RecentErrors(3 * errors_of().bytes, 10)
    for place, namespace in enumerate("vwxyz"):
        recent.put(key("a", namespace), errors_of(place))
    recent.put(key("a", "x"), errors_of(7.0))
    recent.put(key("a", "u"), errors_of())
    assert [each.namespace for each in recent] == ["z", "x", "u"]
    assert recent.get(key("a", "y")) is None
    kept = recent.get(key("a", "x"))
    assert kept is not None
    assert kept.equals(errors_of(7.0))
    recent.put(key("a", "t"), errors_of(origins=100))
    assert [each.namespace for each in recent] == ["t"]


def test_removed_errors_make_room() -> None:
    recent = RecentErrors(2 * errors_of().bytes, 10)
    for name in "ab":
        recent.put(key(name), errors_of())
    recent.remove(key("b"))
    recent.remove(key("b"))
    recent.put(key("c"), errors_of())
    assert [*recent.of_namespace(key("a"))] == [key("a"), key("c")]
