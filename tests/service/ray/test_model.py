from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.exceptions import RayTaskError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RequestCancelledError,
)

from foretell.bundle.errors import BundleError
from foretell.service.errors import (
    EngineLostError,
    InvalidInputError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
)
from foretell.service.ray.model import Answer, RayModel, RayRun, key_of
from tests.service.bundles import Spec, rewrite_manifest, write_bundle
from tests.service.ray.local import Calls, died

FEEDS = {"history": np.ones((2, 8, 1), np.float32)}
OUTPUTS = {"forecast": np.zeros((2, 4, 1), np.float32)}
PATIENCE = 30.0


class Once:
    """An engine with one answer, given when the gate is open."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def run(self, *_: object) -> Answer:
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.answer


def run(asking: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(asking, PATIENCE))


def model_of(folder: Path, answer: Answer) -> tuple[RayModel, Calls, Once]:
    engine = Once(answer)
    calls = Calls(engine)
    return RayModel(folder / "one" / "1", calls, "CPUExecutionProvider", 8), calls, engine


async def outcome(pending: RayRun) -> dict[str, np.ndarray]:
    done = asyncio.Event()
    pending.add_done_callback(lambda _: done.set())
    await done.wait()
    assert pending.done()
    return pending.result()


def later() -> float:
    return time.monotonic() + PATIENCE


def test_a_run_is_an_engines(repository: Path) -> None:
    async def ask() -> None:
        answer = Answer(None, waited=0.5, ran=2.0, batch=7, outputs=OUTPUTS)
        model, calls, engine = model_of(repository, answer)
        engine.gate.clear()
        pending = model.submit(FEEDS, attention=["weights"], deadline=later(), admitted=True)
        assert not pending.done()
        engine.gate.set()
        assert (await outcome(pending))["forecast"] is OUTPUTS["forecast"]
        ((key, (told, feeds, attention, seconds, admitted)),) = calls.given
        assert key == told == key_of(repository / "one" / "1")
        assert feeds is FEEDS
        assert (attention, admitted) == (("weights",), True)
        assert PATIENCE - 5 < seconds <= PATIENCE
        assert pending.batch == 7
        assert pending.ended - pending.began == pytest.approx(2.0)
        assert pending.submitted <= pending.ended <= time.monotonic()

    run(ask())


def test_what_is_known_of_it(repository: Path) -> None:
    async def ask() -> None:
        model, _, _ = model_of(repository, Answer(None))
        assert (model.name, model.version, model.failure) == ("one", "1", None)
        assert (model.provider, model.max_batch) == ("CPUExecutionProvider", 8)
        assert model.manifest.context == 8
        assert model.usage == (0, 0, 0, 0)
        assert await model.example() is None
        model.close(0.0)

    run(ask())


def test_an_error_is_the_engines(repository: Path) -> None:
    async def ask() -> None:
        full = QueueFullError("full", retry_after=7)
        model, _, _ = model_of(repository, Answer.refusal(full))
        with pytest.raises(QueueFullError, match="full") as raised:
            await outcome(model.submit(FEEDS, deadline=later()))
        assert raised.value.retry_after == 7
        wrong = InvalidInputError("no", param="inputs[0]")
        model, _, _ = model_of(repository, Answer.refusal(wrong))
        with pytest.raises(InvalidInputError) as other:
            await outcome(model.submit(FEEDS, deadline=later()))
        assert other.value.param == "inputs[0]"

    run(ask())


@pytest.mark.parametrize("lost", [died, lambda: RequestCancelledError("it")])
def test_what_an_engine_lost_another_one_runs(repository: Path, lost: Any) -> None:
    async def ask() -> None:
        model, calls, _ = model_of(repository, Answer(None, outputs=OUTPUTS))
        calls.raises += [lost()]
        assert "forecast" in await outcome(model.submit(FEEDS, deadline=later()))
        assert len(calls.given) == 2

    run(ask())


def test_a_request_goes_not_round_all_engines(repository: Path) -> None:
    async def ask() -> None:
        model, calls, _ = model_of(repository, Answer(None))
        calls.raises += [died(), died(), died()]
        with pytest.raises(EngineLostError) as raised:
            await outcome(model.submit(FEEDS, deadline=later()))
        assert raised.value.headers == {"Retry-After": "1"}
        assert len(calls.given) == 2

    run(ask())


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (BackPressureError(1, 1), QueueFullError),
        (DeploymentUnavailableError(None), EngineLostError),
        (RayTaskError("run", "", ValueError("a bug")), ModelFailedError),
    ],
)
def test_errors_of_the_cluster(
    repository: Path, raised: Exception, expected: type[ServiceError]
) -> None:
    async def ask() -> None:
        model, calls, _ = model_of(repository, Answer(None))
        calls.raises += [raised]
        with pytest.raises(expected):
            await outcome(model.submit(FEEDS, deadline=later()))
        assert len(calls.given) == 1

    run(ask())


def test_a_run_that_is_given_up_is_cancelled_where_it_waits(repository: Path) -> None:
    async def ask() -> None:
        model, _, engine = model_of(repository, Answer(None))
        engine.gate.clear()
        pending = model.submit(FEEDS, deadline=later())
        over = asyncio.Event()
        pending.add_done_callback(lambda _: over.set())
        await engine.asked.wait()
        assert pending.cancel()
        await engine.cancelled.wait()
        await over.wait()
        assert pending.done()
        assert not pending.cancel()

    run(ask())


def test_a_bundle_that_was_changed_has_another_key(tmp_path: Path) -> None:
    spec = Spec(name="one")
    folder = write_bundle(tmp_path, spec)
    before = key_of(folder)
    assert before.startswith("one@1#")
    rewrite_manifest(folder, Spec(name="one", changes={"parameters": 7}))
    assert key_of(folder) != before


def test_a_bundle_at_a_wrong_place_is_none(repository: Path) -> None:
    moved = repository / "one" / "2"
    (repository / "one" / "1").rename(moved)
    with pytest.raises(BundleError, match="the manifest is of one version 1"):
        RayModel(moved, Calls(None), "CPUExecutionProvider", 8)


def test_an_example_that_was_changed(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec(name="one", example=10))
    model = RayModel(folder, Calls(None), "CPUExecutionProvider", 8)
    found = asyncio.run(model.example())
    assert found is not None
    (folder / "example.npz").write_bytes(b"other")
    with pytest.raises(NotReadyError, match="changed"):
        asyncio.run(model.example())
