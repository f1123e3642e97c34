from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.errors import DeadlineExceededError
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Options
from tests.service.client import Client
from tests.service.forecast.bodies import EIGHT, body
from tests.support.bundles import Spec, write_bundle

CONTEXT, HORIZON, CHANNELS, FEATURES = 5, 3, 2, 2
MANIFEST = Manifest.model_construct(name="m", horizon=HORIZON, context=CONTEXT)
RANDOM = np.random.default_rng(0)


class Model:
    """Adds up what it reads: every value of its inputs moves every value of its forecast."""

    manifest = MANIFEST

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Future[Arrays]:
        self.submitted.append({"attention": attention, "deadline": deadline, "admitted": admitted})
        assert all(rows.dtype == np.float32 for rows in feeds.values())
        assert all(rows.flags.c_contiguous for rows in feeds.values())
        history = feeds["history"]
        weights = np.linspace(0.1, 0.9, CONTEXT, dtype=np.float32)
        step = np.einsum("bcx,c->bx", history, weights)[:, None]
        calendar = np.zeros(1, np.float32)
        if "future_calendar" in feeds:
            past = feeds["history_calendar"].sum(axis=(1, 2))[:, None, None]
            calendar = feeds["future_calendar"].sum(axis=2, keepdims=True) + past
        outputs: Arrays = {
            "forecast": (np.repeat(step, HORIZON, axis=1) / 2 + calendar).astype(np.float32),
            "margin": history[:, -1, 0],
        }
        if attention:
            outputs["weights"] = history.sum(axis=1)
        future: Future[Arrays] = Future()
        future.set_result(outputs)
        return future


def job(model: Model, horizon: int, windows: int = 4, *, calendar: bool = True) -> Job:
    passes = -(-horizon // HORIZON)
    history = RANDOM.normal(size=(windows, CONTEXT, CHANNELS)).astype(np.float32)
    features = RANDOM.normal(size=(windows, CONTEXT + passes * HORIZON, FEATURES))
    return Job(
        model,  # type: ignore[arg-type]
        Options(horizon, passes, "error", (), None),
        [],
        history,
        features.astype(np.float32) if calendar else None,
        None,
    )


async def done(future: Future[Arrays]) -> Arrays:
    return future.result()


def outputs_of(rolled: Job) -> Arrays:
    return asyncio.run(rolled.run(7.0, done))


def by_hand(rolled: Job, model: Model, window: int) -> Arrays:
    """What a caller gets who sends each forecast back as history, one window at a time."""
    history = rolled.history[window]
    margins: list[np.float32] = []
    for number in range(rolled.options.passes):
        feeds = {"history": history[None, -CONTEXT:]}
        if rolled.calendar is not None:
            calendar = rolled.calendar[window, number * HORIZON :][None]
            feeds["history_calendar"] = calendar[:, :CONTEXT]
            feeds["future_calendar"] = calendar[:, CONTEXT : CONTEXT + HORIZON]
        contiguous = {name: np.ascontiguousarray(rows) for name, rows in feeds.items()}
        found = model.submit(contiguous, deadline=0).result()
        margins.append(found["margin"][0])
        history = np.concatenate([history, found["forecast"][0]])
    return {"forecast": history[CONTEXT:], "margin": np.min(margins)}


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("horizon", [1, 3, 4, 6, 11])
def test_equals_what_a_caller_would_get_by_hand(horizon: int, calendar: bool) -> None:
    model = Model()
    rolled = job(model, horizon, calendar=calendar)
    outputs = outputs_of(rolled)
    assert outputs["forecast"].shape == (4, rolled.options.passes * HORIZON, CHANNELS)
    for window in range(4):
        expected = by_hand(rolled, model, window)
        np.testing.assert_array_equal(outputs["forecast"][window], expected["forecast"])
        assert outputs["margin"][window] == expected["margin"]


class Selected:
    outputs = ("weights",)


def test_only_the_first_pass_is_explained_and_has_to_be_admitted() -> None:
    model = Model()
    rolled = job(model, 8)
    explained = Options(8, 3, "error", (), attention=Selected())  # type: ignore[arg-type]
    outputs = outputs_of(
        Job(model, explained, [], rolled.history, rolled.calendar, None)  # type: ignore[arg-type]
    )
    np.testing.assert_array_equal(outputs["weights"], rolled.history.sum(axis=1))
    assert model.submitted == [
        {"attention": ("weights",), "deadline": 7.0, "admitted": False},
        {"attention": (), "deadline": 7.0, "admitted": True},
        {"attention": (), "deadline": 7.0, "admitted": True},
    ]


def test_a_forecast_that_is_not_finite_is_not_read_again() -> None:
    model = Model()
    rolled = job(model, 7)
    rolled.history[1] = 3e38
    with np.errstate(over="ignore"):
        outputs = outputs_of(rolled)
    assert not np.isfinite(outputs["forecast"][1]).any()
    assert np.isfinite(outputs["forecast"][[0, 2, 3]]).all()
    expected = by_hand(rolled, model, 2)["forecast"]
    np.testing.assert_array_equal(outputs["forecast"][2], expected)


def test_nothing_finite_ends_it() -> None:
    model = Model()
    rolled = job(model, 7)
    rolled.history[:] = 3e38
    with np.errstate(over="ignore"):
        assert not np.isfinite(outputs_of(rolled)["forecast"]).any()
    assert len(model.submitted) == 1


def test_whatever_ends_the_wait_ends_the_passes() -> None:
    model = Model()
    passes = 0

    async def late(future: Future[Arrays]) -> Arrays:
        nonlocal passes
        passes += 1
        if passes == 2:
            raise DeadlineExceededError("too late")
        return future.result()

    with pytest.raises(DeadlineExceededError):
        asyncio.run(job(model, 12).run(7.0, late))
    assert len(model.submitted) == 2


@pytest.mark.parametrize("name", ["multi", "calendar", "monthly", "calibrated"])
def test_a_long_horizon_is_what_a_caller_gets_by_hand(client: Client, name: str) -> None:
    model = client.repository.registry.find(name)
    own, channels = model.manifest.horizon, len(model.manifest.channels)
    values = np.random.default_rng(3).normal(size=(11, channels)).astype(np.float32)
    known = (values if channels > 1 else values[:, 0]).tolist()
    start = "2023-11-01T00:00:00+01:00"
    entry = {"series": known, "start_timestamp": start}
    rolled = client.first(body(entry, model=name, horizon=3 * own - 1))
    assert rolled["rolled_from"] == own
    times: list[str] = []
    for _ in range(3):
        step = client.first(body({"series": known, "start_timestamp": start}, model=name))
        assert "rolled_from" not in step
        known = known + step["mean_forecast"]
        times += step["timestamps"]
    assert rolled["mean_forecast"] == known[11:][: 3 * own - 1]
    assert rolled["timestamps"] == times[: 3 * own - 1]


def test_a_deadline_holds_over_all_passes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=8))
    with Client(folder, max_horizon_multiple=100_000) as client:
        request = {"inputs": [{"series": EIGHT}], "options": {"horizon": 400_000}}
        answer = client.forecast(request, **{"X-Timeout-Ms": "150"})
        assert answer.status_code == 504


def test_any_pass_makes_a_forecast_ill_conditioned(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The margin of this model is the oldest value that it reads: here the fifth, in pass two."""
    folder = tmp_path_factory.mktemp("margin")
    write_bundle(folder, Spec(margin_bound=1e-5))
    series = [1.0, 1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 1.0]
    with Client(folder) as client:
        for horizon, flagged in ((4, False), (5, True), (12, True)):
            request = {"inputs": [{"series": series}], "options": {"horizon": horizon}}
            assert client.first(request)["ill_conditioned"] is flagged
