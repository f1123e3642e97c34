"""Packages that pip installs, next to a project with modules of the same names; and imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server

FOLDERS = ("bundle", "export", "models", "service")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# Each module prints a line when it is imported, which shows wrong imports.
THEIRS = """\
from pathlib import Path
WHOSE = "the project's"
with (Path({folder!r}) / "imported").open("a") as file:
    print(__name__, file=file)
"""
# Every module of foretell, torch's among them, except those that click and Alembic run.
EVERY = """
import importlib.util, pkgutil, foretell
skipped = {"foretell.__main__", "foretell.service.ledger.migrations.env"}
if not importlib.util.find_spec("simdjson"):
    skipped.add("foretell.service.forecast.simd")
for found in pkgutil.walk_packages(foretell.__path__, "foretell."):
    if found.name not in skipped:
        print(importlib.import_module(found.name).__file__)
"""
BOTH = """
import export, models, service
from foretell.predict.forecasts import request_forecasts
print(export.WHOSE, models.WHOSE, service.WHOSE)
import foretell.export, foretell.models, foretell.service
print(export.WHOSE, models.WHOSE, service.WHOSE)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder]
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of an environment with the wheel, from which this repository cannot be imported."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, folder=home)
    scripts = home / "bin"
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python"]
    run(*pip, "install", "--no-deps", "--no-index", wheel, folder=home)
    # Use the installed libraries by their path, which does not run the `.pth` files in it.
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return scripts


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a user's project."""
    folder = tmp_path / "project"
    (folder / "export").mkdir(parents=True)
    (folder / "service").mkdir()
    for name in ("models.py", "export/__init__.py", "service/__init__.py"):
        (folder / name).write_text(THEIRS.format(folder=str(tmp_path)))
    return folder


def run(*command: str | Path, folder: Path) -> str:
    """Output of a command, with the folder first in Python's path."""
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "100"}


def modules() -> set[str]:
    """Files that a package has to hold."""
    # Links among foretell's folders are not followed here.
    files = [path for folder in ("foretell", *FOLDERS) for path in (ROOT / folder).rglob("*")]
    names = [str(path.relative_to(ROOT)) for path in files if path.is_file()]
    return {
        name if name.startswith("foretell/") else f"foretell/{name}"
        for name in names
        if "__pycache__" not in name
    }


def test_wheel_has_only_foretell_and_its_licence(wheel: Path) -> None:
    information = f"foretell-{metadata.version('foretell')}.dist-info"
    with ZipFile(wheel) as file:
        names = file.namelist()
        assert {name.split("/")[0] for name in names} == {"foretell", information}
        assert {name for name in names if name.startswith("foretell/")} == modules()
        for name in ("LICENSE", "NOTICE"):
            assert file.read(f"{information}/licenses/{name}") == (ROOT / name).read_bytes()
        assert "License-Expression: Apache-2.0" in file.read(f"{information}/METADATA").decode()


def test_wheel_of_the_source_archive_has_the_same_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    run(*build, "--directory", tmp_path, folder=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {name for name in names if name.startswith("foretell/")} == modules()
    assert {"LICENSE", "NOTICE"} <= names


def test_the_environment_has_no_package_of_our_folders(installed: Path) -> None:
    code = f"from importlib.util import find_spec; print([*map(find_spec, {FOLDERS})])"
    assert run(installed / "python", "-I", "-c", code, folder=installed) == f"{[None] * 4}\n"


def test_command_server_and_client(installed: Path, project: Path, tmp_path: Path) -> None:
    foretell = installed / "foretell"
    assert "Data and training:" in run(foretell, "--help", folder=project)
    bundle = write_bundle(tmp_path / "repository", Spec(example=9))
    run(foretell, "verify", bundle, folder=project)
    rows = [f"2024-01-01T{hour:02}:00:00,{hour}.5" for hour in range(10)]
    table = tmp_path / "load.csv"
    table.write_text("\n".join(["date,load", *rows, ""]))
    with Server(
        bundle.parent.parent,
        tmp_path / "log",
        # With `-m` Python looks first in the folder in which it is started.
        program=(str(installed / "python"), "-m", "foretell"),
        environment=environment(project),
        folder=project,
        workers=2,
    ) as server:
        printed = run(foretell, "predict", table, "--url", server.url, folder=project)
        assert "repeat@1 on load.csv" in printed
        page = httpx.get(server.url, headers={"Accept": "text/html"}).text
        assert page == (ROOT / "service" / "page" / "index.html").read_text()
        assert httpx.get(f"{server.url}/models/repeat/example").json()["model"] == "repeat@1"
        assert server.stop() == 0
    assert not (tmp_path / "imported").exists()


def test_every_module_is_imported_from_the_installation(
    installed: Path, project: Path, tmp_path: Path
) -> None:
    places = run(installed / "python", "-c", EVERY, folder=project).splitlines()
    assert places
    assert all(Path(place).is_relative_to(installed.parent) for place in places)
    assert not (tmp_path / "imported").exists()


def test_modules_of_the_users_project_are_not_shadowed(
    installed: Path, project: Path, tmp_path: Path
) -> None:
    printed = run(installed / "python", "-c", BOTH, folder=project)
    assert printed == "the project's the project's the project's\n" * 2
    assert (tmp_path / "imported").read_text().split() == ["export", "models", "service"]


TRAINING = {"torch", "onnx", "pandas", "safetensors"} | {
    f"foretell.{package}" for package in ("data", "export", "importers", "models", "training")
}
ASKING, RUNNING = {"foretell.client", "httpx"}, {"onnxruntime", "fastapi"}
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
# A run after only `pip install foretell`: other packages cannot be imported.
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


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("models"), Spec())


def run_here(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def imported(program: str, *arguments: str) -> set[str]:
    done = run_here(program, *arguments)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("program", "arguments", "loaded", "absent"),
    [
        (COMMAND, ("serve", "--help"), "foretell.commands.serve", {*TRAINING, *ASKING, *RUNNING}),
        (APP, ("{models}",), "onnxruntime", {*TRAINING, *ASKING, "ray"}),
        (
            COMMAND,
            ("verify", "{bundle}"),
            "onnxruntime",
            {"torch", "foretell.models", "foretell.export"},
        ),
    ],
    ids=["help", "server", "verify"],
)
def test_serving_loads_nothing_of_training(
    bundle: Path, program: str, arguments: tuple[str, ...], loaded: str, absent: set[str]
) -> None:
    places = {"bundle": bundle, "models": bundle.parent.parent}
    modules = imported(program, *(each.format(**places) for each in arguments))
    assert loaded in modules
    assert not modules & absent


def test_verify_needs_only_what_serving_installs(bundle: Path) -> None:
    extras = PROJECT["optional-dependencies"]
    installed = with_requirements([*PROJECT["dependencies"], *extras["cpu"], *extras["gpu"]])
    providers = metadata.packages_distributions()
    # Modules that the interpreter loads by itself do not count.
    modules = imported(COMMAND, "verify", str(bundle)) - imported(BARE) - {"foretell"}
    foreign = {
        name
        for name in modules & providers.keys()
        if not installed & {canonicalize_name(provider) for provider in providers[name]}
    }
    assert not foreign


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


@pytest.fixture(scope="module")
def others() -> str:
    """Modules that `pip install foretell` does not bring."""
    brought = {*with_requirements(PROJECT["dependencies"]), "foretell"}
    providers = metadata.packages_distributions().items()
    names = {top for top, by in providers if not brought & set(map(canonicalize_name, by))}
    assert {"torch", "fastapi", "matplotlib", "onnxruntime", "polars"} <= names
    return json.dumps(sorted(names))


def test_client_and_predict_need_no_extra(bundle: Path, tmp_path: Path, others: str) -> None:
    table = tmp_path / "load.csv"
    rows = [f"2024-01-01T{hour:02}:00:00,{hour / 8}" for hour in range(8)]
    table.write_text("\n".join(["date,load", *rows, ""]))
    with Server(bundle.parent.parent, tmp_path / "log") as server:
        done = run_here(ALONE, others, "predict", table, "--url", server.url)
        assert "repeat@1" in done.stdout, done.stderr
        done = run_here(ALONE.replace("main()", ASK), others, server.url)
        assert done.stdout == "{'load': [7.0, 7.0, 7.0, 7.0]}\n", done.stderr


def test_report_of_a_bundle_needs_no_extra(bundle: Path, others: str) -> None:
    done = run_here(ALONE, others, "verify", bundle, "--report")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "export {bundle} --triton {folder}/triton",
        "backtest {folder}/load.csv --model {bundle}",
    ],
)
def test_commands_without_a_server_need_no_extra_of_servers(
    bundle: Path, tmp_path: Path, words: str
) -> None:
    rows = [f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:00:00,{hour % 7}" for hour in range(96)]
    (tmp_path / "load.csv").write_text("\n".join(["date,load", *rows, ""]))
    extras = PROJECT["optional-dependencies"]
    others = with_requirements(extras["serve"]) - with_requirements(
        [*PROJECT["dependencies"], *extras["train"], "onnxruntime"]
    )
    providers = metadata.packages_distributions().items()
    missing = sorted(top for top, by in providers if others & set(map(canonicalize_name, by)))
    assert {"fastapi", "pydantic_settings", "uvicorn"} <= set(missing)
    done = run_here(
        ALONE, json.dumps(missing), *words.format(bundle=bundle, folder=tmp_path).split()
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve", "--models", "."), "'foretell[cpu]', or 'foretell[gpu]'"),
        (("presets",), "'foretell[train]'"),
    ],
)
def test_missing_extra_names_the_pip_command(
    others: str, arguments: tuple[str, ...], extra: str
) -> None:
    done = run_here(ALONE, others, *arguments)
    assert done.returncode == 2
    assert done.stderr.endswith(f"is not installed; pip install {extra}\n")
