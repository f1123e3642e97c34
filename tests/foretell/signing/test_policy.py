"""Servers with FORETELL_SIGNED_BY: bundles that are not signed are refused, and others answer."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from foretell.bundle import layout, manifest
from foretell.bundle.serving import Challenger, Serving, write
from foretell.service.errors import LoadFailedError, NotReadyError, StartError
from foretell.service.settings import Settings
from foretell.signing.sign import sign
from foretell.storage.oci.packing import layer_of_file, layer_of_manifest, layer_of_signature
from tests.foretell.signing.faults import Spoil, each_fault
from tests.foretell.signing.keys import Pair
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle

BODY = {"inputs": [{"series": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "frequency": "H"}]}


@pytest.fixture
def second(bundle: Path, pair: Pair) -> Path:
    """A signed version 2 beside the first."""
    second = write_bundle(bundle.parents[1], Spec(name="repeat", version="2"))
    sign(second, pair.private)
    return second


@pytest.fixture
def client(second: Path, pair: Pair) -> Iterator[Client]:
    with Client(second.parents[1], signed_by=(pair.public,)) as client:
        yield client


def answered(client: Client, model: str = "repeat") -> str:
    answer = client.forecast({"model": model, **BODY})
    assert answer.status_code == 200, answer.text
    version: str = answer.json()["model_version"]
    return version


def test_signed_bundles_are_served(client: Client) -> None:
    assert answered(client) == "2"
    assert answered(client, "repeat@1") == "1"


def test_signed_bundle_in_a_mounted_image_is_served(
    bundle: Path, pair: Pair, tmp_path: Path
) -> None:
    content, about = manifest.read_both(bundle)
    layers = [layer_of_file(bundle, file, wanted) for file, wanted in about.files.items()]
    layers.append(layer_of_signature((bundle / layout.SIGNATURE).read_bytes()))
    files = [layer.file for layer in layers]
    for layer in (*layers, layer_of_manifest(content, "repeat", "1", files)):
        with tarfile.open(fileobj=BytesIO(b"".join(layer))) as archive:
            archive.extractall(tmp_path / "image", filter="data")
    assert (tmp_path / "image/models/repeat/1" / layout.WEIGHTS).is_symlink()
    with Client(tmp_path / "image/models", signed_by=(pair.public,)) as client:
        assert answered(client) == "1"


@each_fault
def test_bundle_is_refused_at_the_start(
    second: Path, pair: Pair, other: Pair, spoil: Spoil, reason: str
) -> None:
    spoil(second, other)
    with Client(second.parents[1], signed_by=(pair.public,)) as client:
        assert answered(client) == "1"
        state = client.repository.registry.get("repeat", "2")
        assert state.model is None
        assert reason in state.refused
        assert client.forecast({"model": "repeat@2", **BODY}).status_code == 503


@each_fault
def test_bundle_is_refused_at_a_reload(
    client: Client, second: Path, other: Pair, spoil: Spoil, reason: str
) -> None:
    spoil(second, other)
    client.repository.poll()
    # The model that was tested and verified still answers.
    assert answered(client) == "2"
    assert reason in client.repository.registry.get("repeat", "2").refused
    with pytest.raises(LoadFailedError, match=r"repeat@2 was refused"):
        client.repository.load("repeat", "2")


@each_fault
def test_new_version_is_refused(
    client: Client, bundle: Path, pair: Pair, other: Pair, spoil: Spoil, reason: str
) -> None:
    third = write_bundle(bundle.parents[1], Spec(name="repeat", version="3"))
    sign(third, pair.private)
    spoil(third, other)
    client.repository.poll()
    assert answered(client) == "2"
    assert reason in client.repository.registry.get("repeat", "3").refused


@each_fault
def test_bundle_is_refused_on_demand(
    second: Path, pair: Pair, other: Pair, spoil: Spoil, reason: str
) -> None:
    settings = {"signed_by": (pair.public,), "load": "on-demand", "max_loaded": 1}
    with Client(second.parents[1], **settings) as client:
        assert answered(client) == "2"
        # This evicts version 2.
        assert answered(client, "repeat@1") == "1"
        spoil(second, other)
        answer = client.forecast({"model": "repeat@2", **BODY})
        assert answer.status_code == 503
        model = client.repository.registry.get("repeat", "2").model
        assert model is not None
        assert model.failure is not None
        assert reason in model.failure or "was changed since it was read" in model.failure
        assert answered(client, "repeat@1") == "1"


def test_unsigned_bundle_is_refused_before_it_is_read_on_demand(second: Path, pair: Pair) -> None:
    (second / layout.SIGNATURE).unlink()
    with Client(second.parents[1], signed_by=(pair.public,), load="on-demand") as client:
        assert "is not signed" in client.repository.registry.get("repeat", "2").refused
        assert answered(client) == "1"


def test_unsigned_challenger_is_refused(second: Path, pair: Pair) -> None:
    (second / layout.SIGNATURE).unlink()
    challenger = Challenger(version="2", share=1)
    write(second.parents[1], "repeat", Serving(pin="1", challenger=challenger))
    with Client(second.parents[1], signed_by=(pair.public,)) as client:
        assert answered(client) == "1"
        assert client.repository.registry.challenged.find("repeat").version == "1"


def test_renamed_model_is_refused(bundle: Path, pair: Pair) -> None:
    shutil.copytree(bundle, bundle.parents[1] / "renamed" / "1")
    with Client(bundle.parents[1], signed_by=(pair.public,)) as client:
        refused = client.repository.registry.get("renamed", "1").refused
        assert "the manifest is of repeat version 1" in refused
        with pytest.raises(NotReadyError):
            client.repository.registry.find("renamed")


def test_bundle_signed_again_is_loaded(client: Client, second: Path, pair: Pair) -> None:
    (second / layout.SIGNATURE).unlink()
    client.repository.poll()
    assert "is not signed" in client.repository.registry.get("repeat", "2").refused
    sign(second, pair.private)
    client.repository.poll()
    assert client.repository.registry.get("repeat", "2").refused == ""


def test_server_without_a_signed_bundle_does_not_start(bundle: Path, other: Pair) -> None:
    with pytest.raises(StartError, match=r"no bundle could be loaded:\s.*accepted key"):
        Client(bundle.parents[1], signed_by=(other.public,))


def test_setting_names_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_MODELS", "models")
    monkeypatch.setenv("FORETELL_SIGNED_BY", "/a.pem, b.pem")
    assert Settings.read().signed_by == (Path("/a.pem"), Path("b.pem"))
    for text in ("", "a,,b"):
        monkeypatch.setenv("FORETELL_SIGNED_BY", text)
        with pytest.raises(StartError, match=r"^FORETELL_SIGNED_BY: "):
            Settings.read()


@pytest.mark.parametrize(
    ("name", "message"),
    [("own.pem", "is a private key"), ("missing", "No such file"), ("text", "in PEM")],
)
def test_server_names_the_setting_and_the_file(
    bundle: Path, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "text").write_text("no key")
    file = tmp_path / name
    with pytest.raises(StartError, match=f"^FORETELL_SIGNED_BY: {file}: .*{message}"):
        Client(bundle.parents[1], signed_by=(file,))


def test_server_without_the_extra_does_not_start(
    bundle: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    monkeypatch.delitem(sys.modules, "foretell.signing.verify", raising=False)
    monkeypatch.delitem(sys.modules, "foretell.signing.contents", raising=False)
    with pytest.raises(StartError, match=r"^FORETELL_SIGNED_BY: model_signing is not installed; "):
        Client(bundle.parents[1], signed_by=(pair.public,))
