"""`foretell`, run in the process of the tests."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner, Result

from foretell.__main__ import cli


def run(*words: object, **variables: str) -> Result:
    """Run a command line, such as `run("export", folder)`; variables extend the environment."""
    return CliRunner(env=variables).invoke(cli, [str(word) for word in words])


def done(*words: object, **variables: str) -> Result:
    """Run a command that must succeed."""
    result = run(*words, **variables)
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"
    return result


def refused(*words: object, status: int = 2, **variables: str) -> str:
    """Run a command that must fail; returns its error, which begins with the command's name."""
    result = run(*words, **variables)
    assert (result.exit_code, result.stdout) == (status, ""), f"{result.output}{result.exception!r}"
    assert result.stderr.startswith(f"foretell {words[0]}: ")
    return result.stderr


def imported(*words: object, libraries: set[str]) -> tuple[int, str, set[str]]:
    """Status, output and imported libraries of a command, run in a process of its own."""
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('imported:', *{libraries} & {{*sys.modules}}))\n"
        "from foretell.__main__ import main\nmain()"
    )
    command = [sys.executable, "-c", code, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    output, _, found = ended.stdout.partition("imported:")
    return ended.returncode, output + ended.stderr, {*found.split()}


def cells(text: str) -> list[list[str]]:
    """The rows of all printed tables, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
