from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from click.testing import CliRunner
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from foretell.commands.serve_ray import command
from foretell.service.ray import run
from tests.service.bundles import Spec, write_bundle


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command configures the whole process's logs; a test should not."""
    monkeypatch.setattr("foretell.service.logs.configure", lambda *_: None)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How clusters were begun, or joined: none can be."""
    found: list[dict[str, Any]] = []

    def init(**given: Any) -> None:
        found.append(given)
        raise ConnectionError("no cluster is there")

    monkeypatch.setattr(ray, "init", init)
    return found


def ran(*arguments: str | Path) -> str:
    """What the command says of what is wrong."""
    done = CliRunner().invoke(command, list(map(str, arguments)))
    assert done.exit_code == 2, done.output
    return done.stderr.removeprefix("foretell serve-ray: ").rstrip()


def test_what_is_wrong_is_said_before_a_cluster_is_begun(
    tmp_path: Path, begun: list[dict[str, Any]]
) -> None:
    assert ran() == "FORETELL_MODELS or --models: required, but missing"
    assert ran("--models", tmp_path) == f"model repository {tmp_path}: holds no bundle"
    lost = tmp_path / "lost"
    assert ran("--models", lost).startswith(f"model repository {lost}: ")
    assert ran("--models", tmp_path, "--engines", "2:1").startswith("--engines: expected")
    assert ran("--models", tmp_path, "--port", "-1").startswith("--port: expected at least 0")
    assert not begun


def test_an_empty_folder_that_is_watched_may_be_filled(
    tmp_path: Path, begun: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_WATCH_SECONDS", "1")
    assert ran("--models", tmp_path) == "no cluster is there"
    assert len(begun) == 1


def test_a_cluster_is_begun_or_joined(
    tmp_path: Path, begun: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    write_bundle(tmp_path, Spec())
    assert ran("--models", tmp_path) == "no cluster is there"
    # The folder of another machine is not looked at from here.
    ran("--models", "/of/another/machine", "--address", "auto")
    assert [one["address"] for one in begun] == ["local", "auto"]
    assert [one["include_dashboard"] for one in begun] == [False, None]
    assert run.os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize(
    ("address", "applications", "ended"),
    [
        (None, {"foretell"}, ["shutdown"]),
        ("auto", {"foretell"}, ["shutdown"]),
        ("auto", set(), ["shutdown"]),
        ("auto", {"foretell", "other"}, ["delete foretell"]),
        ("auto", {"other"}, ["delete foretell"]),
    ],
)
def test_what_else_a_cluster_serves_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    applications: set[str],
    ended: list[str],
) -> None:
    write_bundle(tmp_path, Spec())
    found: list[str] = []
    own = Mock()
    own.status.return_value.applications = dict.fromkeys(applications)
    own.run.side_effect = RayServeException("the prefix / is taken")
    own.shutdown.side_effect = lambda: found.append("shutdown")
    own.delete.side_effect = lambda name: found.append(f"delete {name}")
    monkeypatch.setattr(run, "ray_serve", own)
    monkeypatch.setattr(run, "_stopping", Mock())
    monkeypatch.setattr(run, "application", Mock())
    monkeypatch.setattr(run, "ray", Mock())
    given = () if address is None else ("--address", address)
    assert ran("--models", tmp_path, *given) == "the prefix / is taken"
    assert found == ended


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed, by sleeping alone."""
    now = [0.0]
    time = Mock(monotonic=lambda: now[0])
    time.sleep.side_effect = lambda seconds: now.__setitem__(0, now[0] + seconds)
    monkeypatch.setattr(run, "time", time)
    return now


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ([False] * 3 + [True], 1.5),
        ([False] * 99, 10.0),
        # One answer may be late, and the tally be lost on its way: another one takes its place.
        ([False, TimeoutError(), RayError(), RayServeException("none is there"), True], 2.0),
        ([TimeoutError()] * 99, 10.0),
    ],
)
def test_what_doors_have_accepted_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    clock: list[float],
    said: list[bool | Exception],
    ended: float,
) -> None:
    own = Mock()
    own.get_deployment_handle.return_value.options.return_value.remote.return_value.result = Mock(
        side_effect=said
    )
    monkeypatch.setattr(run, "ray_serve", own)
    run.drain(10.0)
    assert clock == [ended]
    own.get_deployment_handle.assert_called_with("Tally", "foretell")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Leaves the handlers of signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("fault", [None, KeyError(), RayServeException("gone"), RayError()])
@pytest.mark.usefixtures("handlers")
def test_a_server_that_stops_drains_its_doors_before_it_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception | None,
    number: signal.Signals,
) -> None:
    write_bundle(tmp_path, Spec())
    found: list[str | float] = []
    own = Mock()
    own.run.side_effect = lambda *_, **__: signal.raise_signal(number)
    own.shutdown.side_effect = lambda: found.append("shutdown")

    def drain(seconds: float) -> None:
        found.append(seconds)
        if fault is not None:
            raise fault

    monkeypatch.setattr(run, "ray_serve", own)
    monkeypatch.setattr(run, "ray", Mock())
    monkeypatch.setattr(run, "drain", drain)
    monkeypatch.setenv("FORETELL_GRACE_SECONDS", "7")
    done = CliRunner().invoke(command, ["--models", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert found == [7.0, "shutdown"]
