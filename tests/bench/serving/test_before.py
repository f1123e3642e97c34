from __future__ import annotations

from pathlib import Path

import pytest

from bench.serving import before
from bench.serving.contenders import CONTENDERS, OURS, ROOT


def test_our_contenders_run_an_earlier_tree(tmp_path: Path) -> None:
    tree = before.checkout("HEAD", tmp_path)
    assert (tree / "service" / "server.py").is_file()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["HEAD"]
    ours = before.contenders("HEAD", tree)
    assert [one.name for one in ours] == [f"{OURS} HEAD", f"{OURS} HEAD --workers 2"]
    for one in ours:
        python = one.install(tmp_path)
        assert one.environment(python)["PYTHONPATH"] == str(tree)
    assert CONTENDERS[0].tree == ROOT


def test_what_is_no_commit_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not a valid object"):
        before.checkout("nothing", tmp_path)
