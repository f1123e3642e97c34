"""Imports between packages, and the names that a package may contain (docs/design.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Folders at the top, to which `foretell` has links: they are imported only as its packages.
FOLDERS = ("bundle", "models", "export", "service")
# Packages within `foretell` that others use.
INNER = ("data", "importers", "signing", "storage", "timeaxis", "training")
PACKAGES = (*FOLDERS, *INNER, "foretell")

# Packages that each package may import, and libraries that it must not import.
ARROWS: dict[str, set[str]] = {
    "timeaxis": set(),
    "bundle": {"timeaxis"},
    "data": {"bundle", "timeaxis"},
    "models": {"bundle", "timeaxis"},
    "training": {"bundle", "data", "models", "timeaxis"},
    "importers": {"bundle", "data", "models", "timeaxis", "training"},
    "export": {"bundle", "data", "models", "timeaxis", "training"},
    # A repository may be in object storage: the engine mirrors it. It may have to be signed.
    "service": {"bundle", "signing", "storage", "timeaxis"},
    "signing": {"bundle"},
    "storage": {"bundle"},
    "foretell": {*FOLDERS, *INNER},
}
_SERVING = {"fastapi", "starlette", "uvicorn", "click"}
_GRAPHS = {"onnx", "onnxruntime", "onnxscript"}
FOREIGN: dict[str, set[str]] = {
    "models": {*_SERVING, *_GRAPHS, "pandas", "pyarrow"},
    "training": {*_SERVING, *_GRAPHS},
    "importers": {*_SERVING, *_GRAPHS},
    "export": _SERVING,
}
# `compression` is of Python 3.14.
STANDARD = {*sys.stdlib_module_names, "compression"}
# Libraries that a server without training has.
LIBRARIES: dict[str, set[str]] = {
    "timeaxis": {"numpy"},
    "bundle": {"numpy", "pydantic"},
    "data": {"numpy", "pandas", "pyarrow", "pydantic"},
    "service": {
        *("backports", "fastapi", "httptools", "msgspec", "numpy", "onnxruntime", "opentelemetry"),
        *("orjson", "prometheus_client", "pydantic", "pydantic_core", "pydantic_settings"),
        *("pythonjsonlogger", "simdjson", "starlette", "uvicorn", "uvloop"),
        # The database of a ledger needs them.
        *("alembic", "sqlalchemy"),
        # The tools of agents.
        "mcp",
    },
    "signing": {"model_signing"},
    "storage": {"httpx", "obstore", "pydantic"},
}
# Libraries for files of tables only, which take time and memory to load.
TABLES = {
    "service/forecast/actuals_table.py": {"pyarrow"},
    "service/forecast/arrow.py": {"flatbuffers", "pyarrow"},
    "service/forecast/columns.py": {"pyarrow"},
    "service/forecast/table.py": {"pyarrow"},
    "service/forecast/table_covariates.py": {"pyarrow"},
}
HEAVY = {"torch", "onnx", "onnxruntime", "fastapi", "pandas", "matplotlib"}
# The extras of the installation with which each package works.
EXTRAS: dict[str, set[str]] = {
    "timeaxis": set(),
    "bundle": set(),
    "data": set(),
    "models": {"train"},
    "training": {"train"},
    "importers": {"train"},
    "export": {"cpu", "gpu", "train"},
    "service": {"cpu", "fast", "gpu", "ledger", "mcp", "otel", "serve"},
    "signing": {"signing"},
    "storage": {"storage"},
    "foretell": {"demo", "mlflow", "plot", "ray", "report", "signing", "storage", "train", "tune"},
}
# The parts of `service` that know HTTP; the others are its core.
HTTP_PARTS = {"api", "forecast", "http", "inference", "mcp", "nixtla", "server"}
HTTP_LIBRARIES = {"fastapi", "httptools", "starlette", "uvicorn", "http"}


def modules(package: str) -> Iterator[Path]:
    return (ROOT / "foretell" / package if package in INNER else ROOT / package).rglob("*.py")


def imports(path: Path) -> set[str]:
    """Dotted names of the modules a file imports, at its top or within functions."""
    return imported_by(path.read_text(), str(path))


def imported_by(source: str, path: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            found |= _imported_at_run_time(node)
    return found


def _imported_at_run_time(call: ast.Call) -> set[str]:
    if ast.unparse(call.func).rpartition(".")[2] not in ("import_module", "__import__"):
        return set()
    return {str(name.value) for name in call.args[:1] if isinstance(name, ast.Constant)}


def tops(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def packages(names: set[str]) -> set[str]:
    """Packages of foretell among these names."""
    parts = [name.split(".") for name in names if tops({name}) == {"foretell"}]
    known = (*FOLDERS, *INNER)
    return {next((part for part in own[1:2] if part in known), own[0]) for own in parts}


def bare(text: str) -> list[str]:
    """Names of modules in a text that lack the prefix `foretell.`."""
    found = re.finditer(rf"(?<![\w./-])({'|'.join(FOLDERS)})(?:\.(\w+)| import\b)", text)
    return [name[0] for name in found if name[2] is None or is_module(ROOT / name[1] / name[2])]


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def where(package: str) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(ROOT)), path) for path in modules(package)]


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_between_packages(package: str) -> None:
    assert where(package)
    forbidden = set(PACKAGES) - {package} - ARROWS[package]
    for name, path in where(package):
        assert not packages(imports(path)) & forbidden, name
        assert not tops(imports(path)) & {"tests", "bench"}, name


@pytest.mark.parametrize("folder", [*PACKAGES, "bench", "tests"])
def test_folders_are_imported_only_as_packages_of_foretell(folder: str) -> None:
    """Under another name a module would be loaded twice, or be one of another project."""
    for name, path in where(folder):
        source = path.read_text()
        assert not tops(imported_by(source, name)) & set(FOLDERS), name
        # Texts may be programs, targets of patches, or names of loggers.
        nodes = ast.walk(ast.parse(source))
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        assert not any(map(bare, texts)), name


def test_bench_and_tests_share_only_tests_support() -> None:
    for name, path in where("bench"):
        used = {each for each in imports(path) if tops({each}) == {"tests"}}
        assert all(each.startswith("tests.support.") for each in used), name
    for name, path in where("tests"):
        assert name.startswith("tests/bench/") or "bench" not in tops(imports(path)), name


def test_the_pages_name_packages_of_foretell() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not bare(path.read_text()), path


def test_nothing_imports_a_mechanism_of_the_zoo() -> None:
    """The registry finds them: each may be removed alone."""
    for name, path in [each for folder in (*PACKAGES, "bench") for each in where(folder)]:
        assert not [one for one in imports(path) if "attention.zoo" in one], name


@pytest.mark.parametrize("package", FOREIGN)
def test_libraries_are_imported_only_in_their_packages(package: str) -> None:
    for name, path in where(package):
        assert not tops(imports(path)) & FOREIGN[package], name


@pytest.mark.parametrize("package", LIBRARIES)
def test_serving_needs_little(package: str) -> None:
    allowed = LIBRARIES[package] | {"foretell"} | STANDARD
    for name, path in where(package):
        assert tops(imports(path)) <= allowed | TABLES.get(name, set()), name


@pytest.mark.parametrize("package", PACKAGES)
def test_imported_libraries_are_declared(package: str) -> None:
    """Every imported library is a requirement itself, not only one of another library."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = set(project["dependencies"])
    for extra in EXTRAS[package]:
        declared |= set(project["optional-dependencies"][extra])
    names = {normal(re.split(r"[^\w.-]", one)[0]) for one in declared}
    known = metadata.packages_distributions()
    for name, path in where(package):
        for library in tops(imports(path)) - {"foretell"} - STANDARD:
            # A library may be for other versions of Python.
            if library in known:
                assert names & set(map(normal, known[library])), (name, library)


def normal(name: str) -> str:
    """The name of a distribution as all indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_client_imports_nothing_of_the_service() -> None:
    for path in modules("foretell/client"):
        names = {name for name in imports(path) if packages({name})}
        assert all(name.startswith(("foretell.bundle.", "foretell.client")) for name in names), path


def test_the_command_line_is_lazy() -> None:
    """Not even the help of every subcommand pays for the libraries one of them needs."""
    code = (
        "import sys; from click.testing import CliRunner; from foretell.__main__ import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def part_of(path: Path) -> str:
    """A package of `service`, or a module next to them."""
    return path.relative_to(ROOT / "service").parts[0].removesuffix(".py")


def test_parts_of_the_service_have_no_cycles() -> None:
    parts: dict[str, set[str]] = {part_of(path): set() for path in modules("service")}
    for path in modules("service"):
        names = [name.split(".") for name in imports(path) if packages({name}) == {"service"}]
        used = {part for name in names for part in name[2:3]}
        parts[part_of(path)] |= used & parts.keys() - {part_of(path)}
    TopologicalSorter(parts).prepare()


def test_core_of_the_service_does_not_import_http() -> None:
    for path in modules("service"):
        part = part_of(path)
        assert part in HTTP_PARTS or not tops(imports(path)) & HTTP_LIBRARIES, path


def ours(path: Path) -> set[str]:
    """The modules of `service` that one imports, by their names within it."""
    found = {name.removeprefix("foretell.service.") for name in imports(path)}
    named = {name for name in found if is_module(ROOT / "service" / name.replace(".", "/"))}
    return named | {name.rpartition(".")[0] for name in found - named if "." in name}


def test_request_formats_do_not_hold_models() -> None:
    """Formats know a model only by `engine/registry.py`, because it may be in another process."""
    names = "engine intervals ipc learned limits recalibration registry run statistics"
    known = {f"engine.{name}" for name in names.split()}
    for path in modules("service"):
        if part_of(path) in HTTP_PARTS - {"server"}:
            used = {name for name in ours(path) if name.startswith(("engine.", "cuda", "session"))}
            assert used <= known, path


def test_scheduler_imports_neither_models_nor_runtimes() -> None:
    names = ("background", "fairness", "queues", "root", "run", "scheduler", "usage")
    known = {"arrays", "errors", *(f"engine.{name}" for name in names)}
    for name in names:
        path = ROOT / "service" / "engine" / f"{name}.py"
        own = {each for each in ours(path) if is_module(ROOT / "service" / each.replace(".", "/"))}
        assert own <= known, path


def test_only_one_module_of_the_service_names_onnxruntime() -> None:
    naming = [name for name, path in where("service") if "onnxruntime" in tops(imports(path))]
    assert naming == ["service/engine/runtime.py"]


# A plug is known only to its own file, its faster forms and the importers.
# By convention one file for each plug, whose classes no other file imports.
PLUGS = ("foretell.models.architectures.", "foretell.models.attention.")
# Common parts of mechanisms are next to them.
COMMON = {
    f"foretell.models.attention.{name}" for name in ("evidence", "heads", "mechanism", "notation")
}

# Files that may import and test for classes.
CLASSES_IN = (
    "models/architectures/",
    "models/attention/",
    # Forms of exact types; what has none stays as it is.
    "export/rewrites/",
    "foretell/importers/",
    # The default mechanism.
    "models/attending.py",
)
# Files that may contain names of architectures and mechanisms.
NAMES_IN = (
    "models/architectures/",
    "models/attention/",
    "foretell/importers/",
    # The demo has three models.
    "foretell/commands/demo.py",
    "foretell/demo/models.py",
    # A baseline that is trained.
    "foretell/backtesting/backtest.py",
    # Examples of the OpenAPI document.
    "service/forecast/answers.py",
    # `stride` is also the distance of two origins.
    "service/forecast/backtest.py",
    "service/mcp/forecasts.py",
    "service/mcp/results.py",
    "foretell/client/backtesting.py",
    # `local` is also Ray's name for a cluster of one machine.
    "foretell/batch/on_ray.py",
    "foretell/commands/batch.py",
)


def specific(source: str) -> set[str]:
    """Modules of single architectures and mechanisms that a file imports."""
    found = imported_by(source, "source")
    return {
        name
        for name in found
        if name.startswith(PLUGS) and ".".join(name.split(".")[:4]) not in COMMON
    }


@cache
def plugs() -> set[str]:
    # Others import this module for its functions, without torch.
    from foretell.models.attention.mechanism import MECHANISMS
    from foretell.models.config import ARCHITECTURES

    return {*ARCHITECTURES, *MECHANISMS}


def named(source: str) -> set[str]:
    """Architectures and mechanisms that a file has as text."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text in plugs()}


def elsewhere(places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        yield from (found for found in where(package) if not found[0].startswith(places))


def test_only_plugs_and_importers_test_for_classes() -> None:
    assert not [name for name, path in elsewhere(CLASSES_IN) if specific(path.read_text())]


def test_only_plugs_and_importers_name_architectures() -> None:
    assert not [name for name, path in elsewhere(NAMES_IN) if named(path.read_text())]


@pytest.mark.parametrize("places", [CLASSES_IN, NAMES_IN])
def test_every_exception_of_the_rules_is_used(places: tuple[str, ...]) -> None:
    found = {
        name
        for package in PACKAGES
        for name, path in where(package)
        if specific(path.read_text()) or named(path.read_text())
    }
    assert all(any(name.startswith(place) for name in found) for place in places)
