"""What serving loads, in a fresh interpreter: never torch, nor anything else of training."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server

ROOT = Path(__file__).resolve().parent.parent

TRAINING = {"torch", "onnx", "pandas", "safetensors"} | {
    f"foretell.{package}" for package in ("data", "export", "importers", "models", "training")
}

# Runs a command line of foretell, then prints what was imported.
COMMAND = """
import json, sys
from foretell.__main__ import main
sys.argv = ["foretell", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print(json.dumps(sorted(sys.modules)))
"""
BARE = "import json, sys; print(json.dumps(sorted(sys.modules)))"
APP = """
import json, sys
from foretell.service.api.app import create_app
from foretell.service.engine.engine import LocalEngine
from foretell.service.metrics import Metrics
from foretell.service.engine.loading import load
from foretell.service.settings import Settings
settings = Settings(models=sys.argv[1], device="cpu")
metrics = Metrics()
repository = load(settings, metrics)
create_app(settings, LocalEngine(repository, metrics))
print(json.dumps(sorted(sys.modules)))
repository.close(5)
"""
# The same where only `pip install foretell` was run: what else is here cannot be imported.
ALONE = """
import json, sys
others = set(json.loads(sys.argv.pop(1)))
class Missing:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from foretell.__main__ import main
main()
"""
ASK = """
import pandas as pd
from foretell import Client
with Client(sys.argv[1]) as client:
    print(client.forecast(pd.DataFrame({"load": range(8)})).to_dict("list"))
"""


def imported(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("models"), Spec())


def test_serve_imports_nothing_heavy_before_it_serves() -> None:
    modules = imported(COMMAND, "serve", "--help")
    assert "foretell.commands.serve" in modules
    assert not modules & {*TRAINING, "onnxruntime", "fastapi", "foretell.client"}


def test_the_server_needs_no_torch(bundle: Path) -> None:
    modules = imported(APP, str(bundle.parent.parent))
    assert "onnxruntime" in modules
    assert not modules & {*TRAINING, "foretell.client", "httpx", "ray"}


def test_verify_needs_no_torch(bundle: Path) -> None:
    modules = imported(COMMAND, "verify", str(bundle))
    assert "onnxruntime" in modules
    assert not modules & {"torch", "foretell.models", "foretell.export"}


def test_verify_needs_only_what_serving_installs(bundle: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = with_requirements([*project["dependencies"], *extras["cpu"], *extras["gpu"]])
    providers = metadata.packages_distributions()
    # What an interpreter loads by itself is none of our doing.
    modules = imported(COMMAND, "verify", str(bundle)) - imported(BARE) - {"foretell"}
    foreign = {
        name
        for name in modules & providers.keys()
        if not installed & {canonicalize_name(provider) for provider in providers[name]}
    }
    assert not foreign


@pytest.fixture(scope="module")
def others() -> str:
    """Modules that `pip install foretell` does not bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {*with_requirements(project["dependencies"]), "foretell"}
    providers = metadata.packages_distributions().items()
    names = {top for top, by in providers if not brought & set(map(canonicalize_name, by))}
    assert {"torch", "fastapi", "matplotlib", "onnxruntime", "polars"} <= names
    return json.dumps(sorted(names))


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_asking_a_server_needs_nothing_more(bundle: Path, tmp_path: Path, others: str) -> None:
    table = tmp_path / "load.csv"
    rows = [f"2024-01-01T{hour:02}:00:00,{hour / 8}" for hour in range(8)]
    table.write_text("\n".join(["date,load", *rows, ""]))
    with Server(bundle.parent.parent, tmp_path / "log") as server:
        done = run(ALONE, others, "predict", table, "--url", server.url)
        assert "repeat@1" in done.stdout, done.stderr
        done = run(ALONE.replace("main()", ASK), others, server.url)
        assert done.stdout == "{'load': [7.0, 7.0, 7.0, 7.0]}\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve", "--models", "."), "'foretell[cpu]', or 'foretell[gpu]'"),
        (("presets",), "'foretell[train]'"),
    ],
)
def test_what_needs_more_says_how_it_is_installed(
    others: str, arguments: tuple[str, ...], extra: str
) -> None:
    done = run(ALONE, others, *arguments)
    assert done.returncode == 2
    assert done.stderr.endswith(f"is not installed; pip install {extra}\n")


def with_requirements(texts: Iterable[str]) -> set[str]:
    """Names of the installed distributions that these requirements bring."""
    waiting = [Requirement(text) for text in texts]
    found: dict[str, set[str]] = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found and requirement.extras <= found[name]:
            continue
        found[name] = found.get(name, set()) | requirement.extras
        try:
            further = map(Requirement, metadata.requires(name) or ())
        except metadata.PackageNotFoundError:  # of `cpu` and `gpu` one is there
            continue
        waiting += [
            each
            for each in further
            if each.marker is None
            or any(each.marker.evaluate({"extra": extra}) for extra in {"", *requirement.extras})
        ]
    return set(found)
