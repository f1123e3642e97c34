"""What pip installs, next to a project that has modules of the same names as our folders."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server

FOLDERS = ("bundle", "export", "models", "service")
# Each leaves a line: who imports one of these by mistake is found out.
THEIRS = """\
from pathlib import Path
WHOSE = "the project's"
with (Path({folder!r}) / "imported").open("a") as file:
    print(__name__, file=file)
"""
# Every module of foretell, torch's among them.
EVERY = """
import importlib, pkgutil, foretell
for found in pkgutil.walk_packages(foretell.__path__, "foretell."):
    if found.name != "foretell.__main__":
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
    """The scripts of an environment with the wheel, which knows nothing of this repository."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, folder=home)
    scripts = home / "bin"
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python"]
    run(*pip, "install", "--no-deps", "--no-index", wheel, folder=home)
    # The libraries, from where they are: of a folder named like this no other `.pth` is read.
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return scripts


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's folder."""
    folder = tmp_path / "project"
    (folder / "export").mkdir(parents=True)
    (folder / "service").mkdir()
    for name in ("models.py", "export/__init__.py", "service/__init__.py"):
        (folder / name).write_text(THEIRS.format(folder=str(tmp_path)))
    return folder


def run(*command: str | Path, folder: Path) -> str:
    """What a command prints, with the folder where Python looks first."""
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


def test_the_wheel_holds_foretell_alone(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    version = metadata.version("foretell")
    assert {name.split("/")[0] for name in names} == {"foretell", f"foretell-{version}.dist-info"}
    assert {name for name in names if name.startswith("foretell/")} == modules()


def test_a_wheel_made_of_the_source_archive_would_hold_as_much(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    run(*build, "--directory", tmp_path, folder=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {name for name in names if name.startswith("foretell/")} == modules()
    assert {"LICENSE", "NOTICE"} <= names


def test_the_wheel_holds_its_licence(wheel: Path) -> None:
    folder = f"foretell-{metadata.version('foretell')}.dist-info"
    with ZipFile(wheel) as file:
        for name in ("LICENSE", "NOTICE"):
            assert file.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()
        assert "License-Expression: Apache-2.0" in file.read(f"{folder}/METADATA").decode()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_environment_has_no_package_of_that_name(installed: Path, name: str) -> None:
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert run(installed / "python", "-I", "-c", code, folder=installed) == "None\n"


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
        # Unlike the script it has the folder it is started in where Python looks first.
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


def test_every_module_of_ours(installed: Path, project: Path, tmp_path: Path) -> None:
    places = run(installed / "python", "-c", EVERY, folder=project).splitlines()
    assert places
    assert all(Path(place).is_relative_to(installed.parent) for place in places)
    assert not (tmp_path / "imported").exists()


def test_modules_of_the_project_stay_its_own(
    installed: Path, project: Path, tmp_path: Path
) -> None:
    printed = run(installed / "python", "-c", BOTH, folder=project)
    assert printed == "the project's the project's the project's\n" * 2
    assert (tmp_path / "imported").read_text().split() == ["export", "models", "service"]
