from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.serving import before
from bench.serving.contenders import CONTENDERS, OURS, ROOT


def test_our_contenders_run_an_earlier_tree(tmp_path: Path) -> None:
    tree = before.checkout("HEAD", tmp_path)
    assert (tree / "service" / "server.py").is_file()
    assert list(tmp_path.iterdir()) == [tree]
    assert before.checkout("HEAD", tmp_path) == tree
    ours = before.contenders("HEAD", tree)
    assert [one.name for one in ours] == [f"{OURS} HEAD", f"{OURS} HEAD --workers 2"]
    # Installed once for both.
    assert {one.home for one in ours} == {f"{OURS}-{tree.name}"}
    for one in ours:
        assert one.constraints == tree / "constraints.txt"
        assert one.environment(tmp_path / "python")["PYTHONPATH"] == str(tree)
    assert CONTENDERS[0].tree == ROOT


def test_requirements_are_those_of_a_server_on_a_cpu() -> None:
    *found, last = before.requirements(ROOT)
    assert last == str(ROOT)
    names = [re.split(r"[\[>=~;]", one)[0] for one in found]
    assert {"numpy", "fastapi", "onnxruntime", "pysimdjson"} < set(names)
    assert not {"foretell", "torch", "onnxruntime-gpu"} & set(names)


def test_what_is_no_commit_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Needed a single revision"):
        before.checkout("nothing", tmp_path)
