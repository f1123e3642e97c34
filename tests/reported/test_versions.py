"""Versions of models that come, change and go while they are served.

A server that loads new versions again and again keeps nothing of those that are gone: the kind of
triton-inference-server/server#4528, where memory grew with each version that was loaded.

Files of a model that are written over, cut off or replaced while the model is served:
triton-inference-server/server#3832.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from foretell.bundle import layout
from foretell.bundle.errors import NoRoomError
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.engine.registry import State
from foretell.service.metrics import Metrics
from tests.service.client import Client
from tests.support.bundles import Spec, rewrite_manifest, softmax_stage, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

SPEC = Spec(stages=(softmax_stage(),), calibrated=1, example=12)
ALL = (*layout.FILES, layout.CALIBRATION, layout.EXAMPLE, layout.MANIFEST)
BODY = {
    "inputs": [{"series": list(range(8))}],
    "options": {"quantiles": [0.1, 0.9], "attention": True},
}


def write_over(file: Path) -> None:
    """Write other content of the same size into the file, and keep its time."""
    found, content = file.stat(), file.read_bytes()
    with file.open("r+b") as opened:
        opened.write(bytes(255 - byte for byte in content))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def cut_off(file: Path) -> None:
    file.open("wb").close()


def append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def replace(file: Path) -> None:
    """Replace the file as rsync does, and keep its time."""
    other, found = file.with_name(f".{file.name}.x"), file.stat()
    other.write_bytes(bytes(255 - byte for byte in file.read_bytes()))
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.rename(file)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written over": write_over,
    "cut off": cut_off,
    "appended to": append,
    "replaced": replace,
    "removed": Path.unlink,
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", SPEC)


@pytest.fixture(params=["start", "on-demand"])
def server(bundle: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(bundle.parent.parent, load=request.param, versions="latest") as server:
        yield server


def answers(server: Client) -> list[Any]:
    """Answers of all routes that read files of the bundle."""
    found = server.forecast(BODY)
    assert found.status_code == 200, found.text
    example = server.get("/models/repeat/example")
    assert example.status_code == 200, example.text
    return [found.json()["outputs"][0]["content"], example.json()]


def reason(server: Client) -> str:
    (card,) = server.get("/models").json()
    (entry,) = server.repository.index()
    assert entry.state == State.READY
    assert (card["refused"] or "") == entry.reason
    return entry.reason


@pytest.mark.parametrize(
    ("change", "file"),
    [
        *(("written over", file) for file in ALL),
        *((change, layout.WEIGHTS) for change in CHANGES if change != "written over"),
        ("cut off", layout.EXPLAIN_GRAPH),
        ("replaced", layout.MANIFEST),
    ],
)
def test_tested_version_answers_after_its_files_change(
    server: Client, bundle: Path, tmp_path: Path, change: str, file: str
) -> None:
    before = tmp_path / "before"
    shutil.copytree(bundle, before)
    server.first({**BODY, "options": {}})
    CHANGES[change](bundle / file)
    # The graph with attention is opened only now.
    expected = answers(server)
    server.repository.poll()
    assert file in reason(server)
    assert server.get("/readyz").status_code == 200
    for _ in range(2):
        server.repository.poll()
    assert answers(server) == expected
    shutil.copyfile(before / file, bundle / file)
    server.repository.poll()
    assert reason(server) == ""
    assert answers(server) == expected


def test_replaced_files_are_tested_before_they_answer(server: Client, bundle: Path) -> None:
    """A version that is copied file by file is refused until the last file is there."""
    expected = answers(server)
    other = write_bundle(bundle.parent.parent.parent / "other", SPEC)
    weights = np.frombuffer((other / layout.WEIGHTS).read_bytes(), np.float32)
    (other / layout.WEIGHTS).write_bytes((3 * weights).tobytes())
    with np.load(other / layout.PROBES) as probes:
        found = dict(probes)
    np.savez(other / layout.PROBES, **{**found, "forecast": 3 * found["forecast"]})
    rewrite_manifest(other, SPEC)
    changed = [name for name in ALL if (other / name).read_bytes() != (bundle / name).read_bytes()]
    assert set(changed) == {layout.WEIGHTS, layout.PROBES, layout.MANIFEST}
    for number, name in enumerate(changed):
        (bundle / name).write_bytes((other / name).read_bytes())
        server.repository.poll()
        is_whole = number == len(changed) - 1
        assert (reason(server) == "") is is_whole
        assert (answers(server) != expected) is is_whole
    assert server.first(BODY)["mean_forecast"] == [21.0] * 4


@pytest.mark.parametrize("way", ["rename", "symlink"])
def test_replaced_folder_is_tested_before_it_answers(tmp_path: Path, way: str) -> None:
    releases = [write_bundle(tmp_path / part, SPEC) for part in ("one", "two")]
    for folder, factor in zip(releases, (1, 2), strict=True):
        (folder / layout.WEIGHTS).write_bytes(np.float32([factor]).tobytes())
        with np.load(folder / layout.PROBES) as probes:
            found = dict(probes)
        np.savez(folder / layout.PROBES, **{**found, "forecast": factor * found["forecast"]})
        rewrite_manifest(folder, SPEC)
        for file in folder.iterdir():
            os.utime(file, (0, 0))
    place = tmp_path / "models" / "repeat" / "1"
    place.parent.mkdir(parents=True)

    def put(number: int) -> None:
        if way == "symlink":
            link = place.with_name(".link")
            link.symlink_to(releases[number])
            link.rename(place)
        else:
            if place.exists():
                place.rename(releases[1 - number])
            releases[number].rename(place)

    put(0)
    with Client(tmp_path / "models") as server:
        assert server.first(BODY)["mean_forecast"] == [7.0] * 4
        put(1)
        assert server.first(BODY)["mean_forecast"] == [7.0] * 4
        server.repository.poll()
        assert server.first(BODY)["mean_forecast"] == [14.0] * 4
        write_over(place / layout.PROBES)
        put(0)
        server.repository.poll()
        assert server.first(BODY)["mean_forecast"] == [7.0] * 4
        put(1)
        server.repository.poll()
        assert layout.PROBES in reason(server)
        assert server.first(BODY)["mean_forecast"] == [7.0] * 4


def test_touched_files_are_not_a_change(server: Client, bundle: Path) -> None:
    """A hard link, for example, changes the time of a file's status."""
    answers(server)
    (model,) = server.repository.models
    for file in bundle.iterdir():
        file.touch()
        os.link(file, bundle.parent / f".{file.name}")
    (bundle / "README").write_text("of nobody's interest")
    server.repository.poll()
    assert server.repository.models == [model]
    assert reason(server) == ""


def test_evicted_version_is_reloaded_only_unchanged(tmp_path: Path) -> None:
    folders = [write_bundle(tmp_path / "models", Spec(name=name)) for name in ("one", "two")]
    one, two = ({"model": name, "inputs": [{"series": [1.0] * 8}]} for name in ("one", "two"))
    with Client(tmp_path / "models", load="on-demand", max_loaded=1) as server:
        server.first(one)
        server.first(two)
        content = (folders[0] / layout.WEIGHTS).read_bytes()
        write_over(folders[0] / layout.WEIGHTS)
        refused = server.forecast(one)
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        index = {entry.name: entry.reason for entry in server.repository.index()}
        assert index == {
            "one": "one/1/weights.bin: sha256 differs from the manifest; the file was changed",
            "two": "",
        }
        server.first(two)
        (folders[0] / layout.WEIGHTS).write_bytes(content)
        server.repository.load("one", "1")
        server.first(one)


@pytest.mark.parametrize("load", ["start", "on-demand"])
def test_full_disk_refuses_loads_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, load: str
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    write_bundle(tmp_path / "models", Spec(name="other"))
    with Client(tmp_path / "models", load=load) as server:
        server.first({"model": "other", "inputs": BODY["inputs"]})
        write_bundle(tmp_path / "models", SPEC)
        with monkeypatch.context() as disk:

            def fail(copy: PrivateCopy, *_: object) -> None:
                raise NoRoomError("repeat/1: cannot be copied to /tmp: No space left on device")

            disk.setattr(PrivateCopy, "_fill", fail)
            for _ in range(3):
                server.repository.poll()
                if load == "on-demand":
                    assert server.forecast({**BODY, "model": "repeat"}).status_code == 503
            server.first({"model": "other", "inputs": BODY["inputs"]})
        report = server.get("/readyz").json()["models"]["repeat@1"]
        assert report == "repeat/1: cannot be copied to /tmp: No space left on device"
        if load == "start":
            # The load is retried without a request, and logged once.
            server.repository.poll()
            assert caplog.text.count("refused repeat@1") == 1
        else:
            server.repository.load("repeat", "1")
        server.first({**BODY, "model": "repeat"})
        assert list(full.iterdir()) == []


def test_a_server_outlives_weights_that_are_cut_off(bundle: Path, tmp_path: Path) -> None:
    """`cp` truncates a file before it writes, and reading a truncated map raises SIGBUS."""
    models = bundle.parent.parent
    with Server(models, tmp_path / "log", workers=2, watch_seconds=0.05) as server:

        def ask() -> Any:
            answer = httpx.post(f"{server.url}/forecast", json=BODY, timeout=60)
            return answer.raise_for_status().json()["outputs"][0]["content"]

        expected = ask()
        for file in layout.FILES:
            cut_off(bundle / file)
        until(lambda: "sha256 differs" in server.log)
        until(lambda: httpx.get(f"{server.url}/models").json()[0]["refused"])
        assert ask() == expected
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        assert server.stop() == 0


def keys(client: Client, name: str, version: str) -> list[tuple[str, ...]]:
    counts = client.metrics.counts
    known = [*counts.counters(), *dict(counts.histograms())]
    return [key for key in known if name in key and version in key]


@pytest.fixture
def nightly(tmp_path: Path) -> Path:
    """Two versions of a model."""
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(name="nightly", version=version))
    return tmp_path


def test_metrics_of_a_removed_version_are_removed(nightly: Path) -> None:
    with Client(nightly, timeout_seconds=0.5) as client:
        for version in ("1", "2"):
            body = {"model": f"nightly@{version}", "inputs": [{"series": [1.0] * 8}]}
            assert client.forecast(body).status_code == 200
        assert keys(client, "nightly", "1")
        # The metrics of a version that is loaded again are kept.
        client.repository.unload("nightly", "2")
        client.repository.load("nightly", "2")
        client.repository.unload("nightly", "1")
        until(lambda: not keys(client, "nightly", "1"))
        text = client.get("/metrics").text
        assert 'model="nightly",version="1"' not in text
        loads = 'foretell_model_loads_total{model="nightly",outcome="loaded",version="2"} 2.0'
        assert loads in text
        assert [*client.metrics.last_run] == [("nightly", "2")]


def test_late_request_of_a_removed_version_adds_no_metrics(nightly: Path) -> None:
    """For example an answer that its client reads slowly, and which an HTTP worker counts."""
    with Client(nightly, timeout_seconds=0.1) as client:
        client.repository.unload("nightly", "1")
        until(lambda: not keys(client, "nightly", "1"))
        late = Metrics()
        for metrics in (client.metrics, late):
            metrics.answered("/forecast", 200, 0.1, ("nightly", "1"), [("encode", 0.1)])
            metrics.backtested("nightly", "1", {0.8: (1, 2)})
        client.metrics.observer("nightly", "1").ran(1, 2, 0.1, 0.2)
        client.metrics.counts.merge(late.counts.take())
        assert 'model="nightly",version="1"' not in client.get("/metrics").text
        client.metrics.answered("/forecast", 200, 0.1, ("nightly", "1"))
        # Times of the last request are removed too.
        until(lambda: not keys(client, "nightly", "1"))
        assert not client.metrics.last_run


@pytest.mark.parametrize("load", ["start", "on-demand"])
def test_refused_version_disappears_with_its_folder(nightly: Path, load: str) -> None:
    broken = nightly / "nightly" / "3"
    write_bundle(nightly, Spec(name="nightly", version="3"))
    (broken / layout.WEIGHTS).write_bytes(b"other")
    with Client(nightly, load=load, max_loaded=2, timeout_seconds=0.5) as client:
        body = {"model": "nightly@3", "inputs": [{"series": [1.0] * 8}]}
        assert client.forecast(body).status_code == 503
        assert 'outcome="refused",version="3"} 1.0' in client.get("/metrics").text
        if load == "on-demand":
            client.repository.unload("nightly", "3")
        shutil.rmtree(broken)
        until(lambda: "3" not in client.repository.registry.versions["nightly"])
        assert 'version="3"' not in client.get("/metrics").text
        assert not keys(client, "nightly", "3")


def test_removing_one_of_many_versions_costs_as_much_as_of_a_few() -> None:
    def calls(count: int) -> int:
        metrics = Metrics()
        versions = {("m", str(version)) for version in range(count)}
        for name, version in versions:
            metrics.observer(name, version).ran(1, 2, 0.1, 0.2)
        made: list[str] = []
        versions.discard(("m", "7"))
        sys.setprofile(lambda _, event, __: made.append(event))
        try:
            metrics.keep(versions)
        finally:
            sys.setprofile(None)
        assert metrics.last_run.keys() == versions
        return len(made)

    assert calls(1000) == calls(10)
