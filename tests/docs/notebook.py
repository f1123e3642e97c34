"""Run the client's notebook against a server: `python -m tests.docs.notebook [ADDRESS]`.

Its output and plots are written into docs/guides/forecast.ipynb. It gets forecasts of its data,
in this folder, from the server of `make serve`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "docs" / "guides" / "forecast.ipynb"
# As the notebook has it.
ADDRESS = "localhost:8000"


def execute(folder: Path, address: str) -> nbformat.NotebookNode:
    """Run it.

    Args:
        folder: Working directory, with the demo's data.
        address: Address of the server; replaces the one in the notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace(ADDRESS, address)
    client = NotebookClient(
        notebook,
        timeout=120,
        resources={"metadata": {"path": str(folder)}},
        # Times of execution would change with every run.
        record_timing=False,
    )
    client.execute()
    for cell in notebook.cells:
        cell.source = cell.source.replace(address, ADDRESS)
    return notebook


if __name__ == "__main__":
    nbformat.write(execute(ROOT, *sys.argv[1:] or [ADDRESS]), NOTEBOOK)
