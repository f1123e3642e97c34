"""The client's notebook runs, and prints what it shows."""

from __future__ import annotations

from pathlib import Path

import httpx
import nbformat

from tests.docs.notebook import NOTEBOOK, execute
from tests.support.process import Server


def forms(notebook: nbformat.NotebookNode) -> list[list[tuple[str, list[str]]]]:
    """Of each cell's outputs: what it is, and in which types.

    The stand-ins of the demo's models may warn of their forecasts.
    """
    return [
        [
            (output.output_type, sorted(output.get("data", {})))
            for output in cell.outputs
            if output.get("name") != "stderr"
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_runs(folder: Path, server: Server) -> None:
    found = execute(folder, httpx.URL(server.url).netloc.decode())
    shown = nbformat.read(NOTEBOOK, as_version=4)
    assert forms(found) == forms(shown)
    assert sum(map(len, forms(shown))) > 8
    assert [cell.source for cell in found.cells] == [cell.source for cell in shown.cells]
