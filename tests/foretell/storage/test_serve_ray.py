"""Doors and engines of a cluster whose repository is in object storage, without a cluster."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.service.errors import from_wire
from foretell.service.settings import Settings
from foretell.storage.location import Location, open_location
from foretell.storage.push import push
from tests.foretell.storage.proxy import Proxy
from tests.service.bundles import Spec, write_bundle

with warnings.catch_warnings():
    # What Ray does with pydantic is none of our doing.
    warnings.simplefilter("ignore")
    import ray

    from foretell.commands.serve_ray import command
    from foretell.service.ray.door import open_repository
    from foretell.service.ray.model import Answer, key_of
    from foretell.service.ray.tally import Tally
    from tests.service.ray.local import Calls, LocalEngine

PATIENCE = 30.0


@pytest.fixture
def location(bucket: str, tmp_path: Path) -> Location:
    """A repository of two models."""
    found = open_location(f"{bucket}/models")
    for name in ("one", "two"):
        push(write_bundle(tmp_path / "written", Spec(name=name)), found)
    return found


class Node:
    """A machine with a door and an engine of its own.

    Attributes:
        door: The repository as its door has it, if that was asked for.
        engine: Its engine.
    """

    def __init__(self, location: Location, cache: Path) -> None:
        self._settings = Settings(models=location.url, cache=cache, device="cpu")
        self.engine = LocalEngine(self._settings, Calls(Tally()))
        self.door = open_repository(self._settings, Calls(self.engine), 8)

    @property
    def folder(self) -> Path:
        return self.engine._folder

    @property
    def has(self) -> list[str]:
        """The bundles that were fetched."""
        return sorted(path.parent.name for path in self.folder.glob("*/1"))

    def ask(self, *keys: str) -> list[Answer]:
        """What the engine says of a window, by the keys of models."""
        feeds = {"history": np.ones((1, 8, 1), np.float32)}

        async def asked() -> list[Answer]:
            found = [await self.engine.run(key, feeds, (), PATIENCE, False) for key in keys]
            await self.engine._teller.close()
            return found

        return asyncio.run(asyncio.wait_for(asked(), PATIENCE))

    def close(self) -> None:
        self.door.close(5)
        self.engine.held.clear()
        self.engine._batcher.close(5)


def said(answer: Answer) -> str:
    """Why there is no forecast."""
    assert answer.error is not None
    return str(from_wire(answer.error))


def test_engines_fetch_what_doors_ask_for(location: Location, tmp_path: Path) -> None:
    first, other = Node(location, tmp_path / "first"), Node(location, tmp_path / "other")
    first.door.start()
    assert [model.name for model in first.door.models] == ["one", "two"]
    assert first.has == ["one", "two"]
    key = key_of(first.folder / "one" / "1")
    for node in (first, other):
        (answer,) = node.ask(key)
        assert answer.error is None
    # On a node without a door.
    assert other.has == ["one"]
    first.close()
    other.close()


def test_no_fault_changes_what_engines_hold(
    location: Location, s3: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = Node(location, tmp_path / "first")
    known.door.start()
    one, two = (key_of(known.folder / name / "1") for name in ("one", "two"))
    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        node = Node(location, tmp_path / "cache")
        assert node.ask(one)[0].error is None
        # What is here is not asked for.
        node.engine.held.clear()
        proxy.asked.clear()
        assert node.ask(one)[0].error is None
        assert not proxy.asked
        proxy.faults["GET .*two/1/manifest"] = "wrong"
        assert said(node.ask(two)[0]) == "two@1 was refused by an engine; its log says why"
        proxy.faults["list-type"] = "denied"
        node.engine._refused.clear()
        assert "was refused by an engine" in said(node.ask(two)[0])
        assert node.ask(one)[0].error is None
        proxy.faults.clear()
        node.engine._refused[two] = 0.0
        assert node.ask(two)[0].error is None
        assert node.has == ["one", "two"]
        gone = "two@1#0123456789abcdef"
        assert said(node.ask(gone)[0]) == "two@1 has just been changed; ask again"
        node.close()
    known.close()


def test_what_is_damaged_on_a_node_is_fetched_again(location: Location, tmp_path: Path) -> None:
    before = Node(location, tmp_path / "cache")
    before.door.start()
    key = key_of(before.folder / "one" / "1")
    before.close()
    weights = before.folder / "one" / "1" / "weights.bin"
    weights.unlink()
    weights.write_bytes(b"damaged")
    node = Node(location, tmp_path / "cache")
    assert "was refused by an engine" in said(node.ask(key)[0])
    node.engine._refused[key] = 0.0
    assert node.ask(key)[0].error is None
    # From now on it is one like any other.
    assert not node.engine._refused
    node.close()


def test_the_command_looks_at_the_storage_first(
    location: Location, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = []

    def init(**_: object) -> None:
        begun.append(1)
        raise ConnectionError("no cluster is there")

    environment.setattr(ray, "init", init)
    environment.setattr("foretell.service.logs.configure", lambda *_: None)
    environment.setenv("FORETELL_CACHE", str(tmp_path / "cache"))

    def ran(url: str) -> str:
        done = CliRunner().invoke(command, ["--models", url])
        assert done.exit_code == 2, done.output
        return done.stderr.removeprefix("foretell serve-ray: ").rstrip()

    assert ran("ftp://bucket") == "ftp://bucket: expected s3://bucket/prefix, gs://… or az://…"
    assert ran("s3://nowhere").startswith("model repository s3://nowhere: NoSuchBucket")
    empty = f"{location.url}/none"
    assert ran(empty) == f"model repository {empty}: holds no bundle"
    assert not begun
    assert ran(location.url) == "no cluster is there"
