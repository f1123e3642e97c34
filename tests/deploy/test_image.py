"""Content of the images: the libraries, and the files that deploy/slim.sh keeps."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from pyarrow import ipc

from tests.deploy.files import DEPLOY
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.test_architecture import normal

DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Megabytes that the CPU's image adds to its base.
MOST_MB = 220
# Licences that allow distribution in an image with only the licence's text.
LICENCES = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MPL-2.0", "PSF-2.0"),
    "Zlib",
}
# Licences of libraries without an SPDX expression.
CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Read by hand: their metadata have no licence.
READ = {"protobuf": "BSD-3-Clause", "pysimdjson": "MIT AND Apache-2.0"}
TABLE = "application/vnd.apache.arrow.stream"


def libraries() -> set[str]:
    """Distributions that the CPU's image installs."""
    if metadata.packages_distributions()["onnxruntime"] != ["onnxruntime"]:
        pytest.skip("another build of onnxruntime is installed here")
    text = (ROOT / "locks" / "serve-cpu.txt").read_text()
    lines = re.findall(r"^([^#\s].*?) \\$", text, re.MULTILINE)
    found = [Requirement(line) for line in lines]
    return {normal(one.name) for one in found if one.marker is None or one.marker.evaluate()}


def test_libraries_are_those_of_a_server() -> None:
    assert {"pyarrow", "uvloop"} <= libraries()
    assert not {"foretell", "pandas"} & libraries()


def test_each_extra_of_the_image_has_the_name_of_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {path.stem.removeprefix("extra-") for path in (ROOT / "locks").glob("extra-*.txt")}
    assert {"ledger", "postgresql"} <= names <= set(extras)


def test_unknown_extra_is_refused(tmp_path: Path) -> None:
    script = (DEPLOY / "install.sh").read_text().replace("/opt/foretell/bin/pip", "true")
    (tmp_path / "locks").symlink_to(ROOT / "locks")
    done = subprocess.run(
        ["sh", "-c", script, "install.sh", "cpu", "postgresql", "postgres"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "EXTRAS: postgres is not one of" in done.stderr
    assert "locks/extra-postgresql.txt" in done.stderr


def licence(name: str) -> str:
    """The licence of an installed distribution, as an SPDX expression where it is known."""
    fields = metadata.metadata(name)
    classified = [
        CLASSIFIED.get(one.rpartition(" :: ")[2], one)
        for one in fields.get_all("Classifier", [])
        if one.startswith("License :: ") and one != "License :: OSI Approved"
    ]
    known = fields.get("License-Expression") or READ.get(name) or " OR ".join(classified)
    return known or fields.get("License") or "unknown"


def test_licences_allow_distribution() -> None:
    licences = {name: licence(name) for name in libraries()}
    refused = {
        name: text
        for name, text in licences.items()
        if not set(re.findall(r"[\w.-]+", text)) - {"AND", "OR"} <= LICENCES
    }
    assert not refused


def test_copied_files_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY ((?!--from|\. )[^/].*) /src/$", DOCKERFILE, re.MULTILINE)
    assert copied
    for file in copied[0].split():
        assert f"!{file}" in ignored
        assert (ROOT / file).is_file()


def test_build_compiles_all_imported_modules() -> None:
    [code] = re.findall(r"LD_BIND_NOW=1 \S+python -I -c '(import [^']+)'", DOCKERFILE)
    # Modules that the server imports on demand.
    later = ("onnxruntime", "pyarrow.compute", "uvloop")
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    code += f"; import sys; sys.exit(str({{*{(*later, exporter)}}} - {{*sys.modules}} or ''))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr.strip()


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what the image installs, after deploy/slim.sh."""
    for tool, package in (("strip", "binutils"), ("patchelf", "patchelf")):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here (Debian: {package})")
    home = tmp_path_factory.mktemp("slim")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    source = Path(sysconfig.get_path("platlib"))
    target = home / source.relative_to(sys.prefix)
    for name in (*libraries(), "foretell"):
        for file in metadata.files(name) or ():
            # Without commands, which lie elsewhere, and links to this repository.
            if ".." not in file.parts and file.suffix != ".pth" and (source / file).exists():
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / file, target / file)
    # As pip does in the image.
    compileall.compile_dir(target, quiet=2)
    subprocess.run([ROOT / "deploy" / "slim.sh", home], check=True)
    return home


def test_image_is_small(slim: Path) -> None:
    files = [file for file in slim.rglob("*") if file.is_file() and not file.is_symlink()]
    assert sum(file.stat().st_size for file in files) / 1e6 < MOST_MB


@pytest.mark.parametrize("workers", [1, 2])
def test_server_of_the_image_reads_json_and_tables(
    slim: Path, tmp_path: Path, workers: int
) -> None:
    write_bundle(tmp_path / "repository", Spec())
    ids = pa.array(["a"] * 8).dictionary_encode()
    table = pa.table({"unique_id": ids, "load": [1.0] * 8})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with Server(
        tmp_path / "repository",
        tmp_path / "log",
        program=(str(slim / "bin" / "python"), "-m", "foretell"),
        # With LD_BIND_NOW a library that lacks a symbol fails when it is loaded.
        environment={**os.environ, "PYTHONPATH": str(ROOT), "LD_BIND_NOW": "1"},
        workers=workers,
    ) as server:
        body = {"inputs": [{"series": [1.0] * 8}]}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == 200
        answer = httpx.post(
            f"{server.url}/forecast",
            content=sink.getvalue().to_pybytes(),
            headers={"Content-Type": TABLE, "Accept-Encoding": "zstd"},
        )
        assert answer.status_code == 200, answer.text
        assert ipc.open_stream(answer.content).read_all()["load"].to_pylist() == [1.0] * 4
        assert server.stop() == 0
