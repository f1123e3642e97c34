"""Writes docs/reference/ from the code: `make reference`.

Settings come from their model, commands from click, HTTP from the OpenAPI document, metrics from
those of a running application, and the Python client from its docstrings.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
import griffe
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import foretell.client
from foretell.__main__ import cli
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.config import ARCHITECTURES
from foretell.service.engine import statistics
from foretell.service.metrics import FAMILIES
from foretell.service.settings import Settings
from foretell.settings.described import settings_of
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.gauges import ledger_gauges
from tests.support.process import ROOT

FOLDER = ROOT / "docs" / "reference"
_MADE = "<!-- `make reference` writes this page from the code. -->\n"
_SAMPLE = re.compile(r"^(\w+?)(?:_bucket|_sum|_count)?{(.*)} ", re.MULTILINE)


def pages() -> dict[str, str]:
    """The pages, by the names of their files."""
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(Path(folder), Spec(calibrated=3))
        with Client(Path(folder), load="on-demand") as client:
            client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
            document = client.get("/openapi.json").json()
            counted = client.get("/metrics").text
    found = {
        "settings.md": _settings(),
        "commands.md": _commands(),
        "training.md": _training(),
        "http.md": _http(document),
        "metrics.md": _metrics(counted),
        "python.md": _python(),
    }
    return {name: f"{_MADE}\n{text.rstrip()}\n" for name, text in found.items()}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def described_settings() -> dict[str, str]:
    """The docstrings of the settings, by name; a server does not read them."""
    members = griffe.load("foretell.service.settings")["Settings"].members
    return {
        name: members[name].docstring.value
        for name in Settings.model_fields
        if members[name].docstring is not None
    }


def _settings() -> str:
    described = described_settings()
    rows = [
        (f"`FORETELL_{name.upper()}`", _default(field), described[name])
        for name, field in Settings.model_fields.items()
    ]
    table = _table(("variable", "default", "meaning"), rows)
    return f"""# Settings of the server

Each setting is an environment variable. `foretell serve --help` lists those that are also options;
an option wins over its variable. The log names a variable that looks like a setting and is none.

Sizes are bytes, or `64MB` and `1G` (powers of 1000), or `512MiB` and `1Gi` (powers of 1024). Times
are seconds, or `500ms`, `30s`, `5m`, `1h`. An empty variable counts as unset. Exception: if
a variable of API, actuals or ledger keys is empty and its list has no other keys, the server does
not start, so that a lost secret never opens it. Nor does it with an empty `FORETELL_SIGNED_BY`.

{table}

Limits of connections and bodies hold for each HTTP worker, those of queues for the server.
"""


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined:
        return "required"
    if default in (None, (), {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _commands() -> str:
    context = click.Context(cli, info_name="foretell", max_content_width=100)
    parts = ["# The command\n\n`foretell COMMAND --help` prints the same."]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        own = click.Context(command, parent=context, info_name=name, terminal_width=100)
        parts.append(f"## {name}\n\n```text\n{command.get_help(own)}\n```")
    return "\n\n".join(parts)


def _training() -> str:
    parts = [
        "# Settings of trainings and models\n\n`--set NAME=VALUE` and the YAML file of `--config` "
        "take them; `foretell settings [NAME]` prints the same."
    ]
    kinds: dict[str, list[str | None]] = {
        "Training": [None],
        "Architectures": [*ARCHITECTURES],
        "Mechanisms": [*MECHANISMS],
    }
    for title, names in kinds.items():
        parts.append(f"## {title}")
        for name in names:
            rows = [
                (f"`{one.name}`", one.values, one.default, one.description)
                for one in settings_of(name)
            ]
            table = (
                _table(("setting", "values", "default", "meaning"), rows)
                if rows
                else "No settings."
            )
            parts.append(table if name is None else f"### {name}\n\n{table}")
    return "\n\n".join(parts)


def _http(document: Mapping[str, Any]) -> str:
    parts = [
        "# HTTP\n\nA server shows the same at `/docs`, with requests to try, and has the OpenAPI "
        "document at `/openapi.json`. A server with API keys also answers 401 on each path that "
        "needs a key ([keys](../guides/security.md#keys)).",
        "## Paths",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"### {method.upper()} {path}\n\n{operation['description']}")
            parts += _described_operation(operation)
    parts.append("## Objects")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f"### {name}\n\n{schema.get('description', '')}".rstrip())
        if fields := schema.get("properties"):
            required = set(schema.get("required", ()))
            rows = [
                (
                    f"`{field}`",
                    _type(one),
                    "yes" if field in required else "",
                    one.get("description", ""),
                )
                for field, one in fields.items()
            ]
            parts.append(_table(("field", "type", "required", "meaning"), rows))
    return "\n\n".join(parts)


def _described_operation(operation: Mapping[str, Any]) -> Iterator[str]:
    if parameters := operation.get("parameters"):
        rows = [
            (f"`{one['name']}`", one["in"], _type(one["schema"]), one.get("description", ""))
            for one in parameters
        ]
        yield _table(("parameter", "in", "type", "meaning"), rows)
    bodies = operation.get("requestBody", {}).get("content", {})
    if bodies:
        yield f"Body: {_contents(bodies)}."
    rows = [
        (status, answer["description"], _contents(answer.get("content", {})))
        for status, answer in operation["responses"].items()
    ]
    yield _table(("status", "meaning", "body"), rows)


def _contents(contents: Mapping[str, Any]) -> str:
    return ", ".join(
        f"`{kind}` {_type(one['schema'])}" if "$ref" in one.get("schema", {}) else f"`{kind}`"
        for kind, one in contents.items()
    )


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(_type(kind) for kind in kinds)
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    return "map" if kind == "object" else str(kind)


def _metrics(text: str) -> str:
    # Metrics of repositories in object storage, and of ledgers.
    others = chain(statistics.gauges((), 1, ready=True, read_at=0), ledger_gauges())
    text += b"".join(others).decode()
    named = {name: set(family.labels) for name, family in FAMILIES.items()}
    for name, own in _SAMPLE.findall(text):
        named.setdefault(name, set()).update(set(re.findall(r'(\w+)="', own)) - {"le"})
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    meanings = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    rows = [
        (f"`{name}`", kinds[name], ", ".join(sorted(named.get(name, ()))), meaning)
        for name, meaning in meanings.items()
    ]
    table = _table(("metric", "type", "labels", "meaning"), rows)
    return f"""# Metrics

`GET /metrics` has them in Prometheus' text format; any HTTP worker answers for all of them.
`process` is `server`; with several HTTP workers it is `worker-0` and so on, `engine`, or
`supervisor`. `model` and `version` are empty where a request names no known model.

{table}
"""


def _python() -> str:
    package = griffe.load("foretell.client", docstring_parser="google", resolve_aliases=True)
    parts = [
        "# Python client\n\n`from foretell import AsyncClient, Client`; the other names are in "
        "`foretell.client`."
    ]
    for name in foretell.client.__all__:
        one = package[name]
        parts.append(f"## {name}")
        parts += _docstring(one)
        own = [
            member
            for member in one.all_members.values()
            if member.is_function and not member.name.startswith("_") and member.docstring
        ]
        for member in own:
            target = member.final_target if member.is_alias else member
            signature = inspect.cleandoc(target.signature())
            parts.append(f"### {name}.{member.name}\n\n```text\n{signature}\n```")
            parts += _docstring(target)
    return "\n\n".join(parts)


def _docstring(of: Any) -> Iterator[str]:
    for section in of.docstring.parsed if of.docstring else ():
        match section.kind.value:
            case "text":
                yield section.value
            case "examples":
                text = "\n\n".join(value for _, value in section.value)
                yield f"```text\n{text}\n```"
            case "parameters" | "attributes" | "other parameters":
                rows = [(f"`{one.name}`", one.description) for one in section.value]
                yield _table((section.kind.value.rstrip("s"), "meaning"), rows)
            case "returns":
                yield "Returns: " + " ".join(one.description for one in section.value)
            case "raises":
                rows = [(f"`{one.annotation}`", one.description) for one in section.value]
                yield _table(("raises", "when"), rows)
            case "admonition":
                text = section.value.contents
                yield f"```text\n{text}\n```" if text.startswith(">>>") else text


def main() -> None:
    """Write the pages into docs/reference/, or into another folder that is given."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
