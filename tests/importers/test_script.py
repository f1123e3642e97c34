import json
from pathlib import Path
from typing import Any

import pytest

from foretell.importers.arguments import read_arguments, read_setting
from foretell.importers.errors import ImporterError
from foretell.importers.script import Run, read_script

# As yuqinie98/PatchTST has them.
PUBLISHED = """\
# a comment with --seq_len 1, and don't end a quotation
if [ ! -d "./logs" ]; then
    mkdir ./logs
fi
seq_len=336
model_name=PatchTST
export CUDA_VISIBLE_DEVICES=0

for pred_len in 96 192
do
    python -u run_longExp.py \\
      --model_id $model_id_name_$seq_len'_'$pred_len \\
      --model $model_name \\
      --data "ETTh1" \\
      --seq_len ${seq_len} \\
      --pred_len $pred_len \\
      --dropout 0.3\\
      --unknown $undefined \\
      --itr 1 >logs/$model_name.log  # --seq_len 2
done
"""


def values(script: list[Run]) -> list[dict[str, object]]:
    return [{name: known.value for name, known in run.arguments.items()} for run in script]


def write(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    return str(folder / name)


def test_published_script(tmp_path: Path) -> None:
    script = read_script(write(tmp_path, "etth1.sh", PUBLISHED))
    known = {"model": "PatchTST", "data": "ETTh1", "seq_len": 336, "dropout": 0.3}
    assert values(script) == [known]
    assert script[0].unread == {"pred_len": "etth1.sh has $pred_len"}
    assert script[0].complete
    assert script[0].arguments["seq_len"].provenance == "etth1.sh"


def test_several_commands(tmp_path: Path) -> None:
    content = "python run.py --pred_len 96 --d_ff 32\r\npython run.py --pred_len=192 --d_ff 64\r\n"
    script = read_script(write(tmp_path, "a.sh", content))
    assert values(script) == [{"pred_len": 96, "d_ff": 32}, {"pred_len": 192, "d_ff": 64}]


@pytest.mark.parametrize(
    ("script", "heads"),
    [
        ("n=2 # small\nrun --n_heads $n", 2),
        ("n=8; d=64\nrun --n_heads $d", 64),
        ("export n=8 m=4\nrun --n_heads ${m}", 4),
        ("  n=2\nrun --n_heads=$n", 2),
        ("list='--n_heads 4 --d_ff 8'\npython run.py $list", 4),
        ("n=2\nrun --n_heads \\\n  $n # --n_heads 3", 2),
        ("n=8\nif [ ! -d logs ]; then mkdir logs; fi\nrun --n_heads $n", 8),
        ("n=8\ncd code && run --n_heads $n > log$n 2>&1 &", 8),
        ("for i in 1 2; do\n  n=2\n  run --n_heads $n\ndone", 2),
        ("{\n  m=3\n}\nf() {\n  m=4\n}\nn=2\nrun --n_heads $n", 2),
        ("run --des 'a #1' --n_heads 4", 4),
        # Values that are known only when the script runs.
        ("run --n_heads $n\nn=2", None),
        ("if [ $1 ]; then\n  n=2\nfi\nrun --n_heads $n", None),
        ("if [ $1 ]\nthen echo\nelse\n  n=2\nfi\nrun --n_heads $n", None),
        ("case $1 in\na)\n  n=2\n  ;;\nesac\nrun --n_heads $n", None),
        ("while [ $1 ]; do\n  n=2\ndone\nrun --n_heads $n", None),
        ("f() {\n  n=2\n}\nrun --n_heads $n", None),
        ("function f\n{\n  n=2\n}\nrun --n_heads $n", None),
        ("run --n_heads $n", None),
        ("n=$1\nrun --n_heads $n", None),
        ("n=$((2*4))\nrun --n_heads $n", None),
        ("n=(2 4)\nrun --n_heads $n", None),
        ("n=2\nn+=4\nrun --n_heads $n", None),
        ("n=2\nrun --n_heads $n\nn=4", None),
        ("n=2\n((n*=2))\nrun --n_heads $n", None),
        ("n=2\nlet n=n+1\nrun --n_heads $n", None),
        ("n=2\nread n\nrun --n_heads $n", None),
        ("n=2\nsource settings\nrun --n_heads $n", None),
        ("n=2\nif [ $1 ]; then n=4; fi\nrun --n_heads $n", None),
        ("case $1 in a) n=2;; *) n=4;; esac\nrun --n_heads $n", None),
        ("n=2\nf() {\n  run --n_heads $n\n}\nn=4\nf", None),
        ("for n in 2 4; do run --n_heads $n; done", None),
        ("n=2\nfor n in 4 6; do run --n_heads $n; done", None),
        ("run --n_heads ${n[0]}", None),
        ("run --n_heads ${1:-8}", None),
        ("run --n_heads `nproc`", None),
        ('run --n_heads ""', None),
    ],
)
def test_variables_that_are_assigned_once_are_known(
    tmp_path: Path, script: str, heads: int | None
) -> None:
    (run,) = read_script(write(tmp_path, "a.sh", script))
    assert run.complete
    if heads is None:
        assert "n_heads" not in run.arguments
        assert run.unread["n_heads"].startswith("a.sh has ")
    else:
        assert (run.arguments["n_heads"].value, run.unread) == (heads, {})


@pytest.mark.parametrize("word", ["$@", '"${options[@]}"', "$2", "$(cat options)"])
def test_variable_may_hold_any_option(tmp_path: Path, word: str) -> None:
    for text in (f"python run.py --seq_len 96 {word}", f"python run.py {word} --seq_len 96"):
        (run,) = read_script(write(tmp_path, "a.sh", text))
        assert not run.complete
    (run,) = read_script(write(tmp_path, "a.sh", "python $script --seq_len 96 >$log 2>&1 | tee $l"))
    assert run.complete


def test_command_of_tfb_with_json(tmp_path: Path) -> None:
    content = (
        "python ./scripts/run_benchmark.py --strategy-args '{\"horizon\": 96}' --model-name "
        '"time_series_library.PatchTST" --model-hyper-params '
        '\'{"d_model": 16, "n_heads": "$n", "norm": true, "seq_len": 336}\''
    )
    (run,) = read_script(write(tmp_path, "tfb.sh", content))
    assert values([run]) == [{"pred_len": 96, "d_model": 16, "seq_len": 336}]
    assert run.unread == {"n_heads": "tfb.sh has $n"}


def test_json_that_a_shell_completes(tmp_path: Path) -> None:
    content = "python run.py --seq_len 96 --model-hyper-params \"{'d_model': $width}\""
    (run,) = read_script(write(tmp_path, "tfb.sh", content))
    assert (values([run]), run.complete) == ([{"seq_len": 96}], False)


@pytest.mark.parametrize("start", ["", "python -u run.py "])
def test_command_itself(start: str) -> None:
    script = read_script(f"{start}--seq_len 96 --embed fixed --individual --revin 0")
    assert values(script) == [{"seq_len": 96, "embed": "fixed", "revin": 0}]
    assert script[0].arguments["revin"].provenance == "--config"
    assert script[0].unread == {"individual": "--config has no value"}


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_yaml_and_json(tmp_path: Path, name: str) -> None:
    content = {"hyper": {"seq_len": 96, "revin": True, "n_heads": "${heads}"}, "batch_size": 32}
    script = read_script(write(tmp_path, name, json.dumps(content)))
    assert values(script) == [{"seq_len": 96, "revin": 1}]
    assert script[0].unread == {"n_heads": f"{name} has ${{heads}}"}
    # A file with unread variables may have set other arguments too.
    assert not script[0].complete


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.sh", "echo nothing\n", "no command with arguments"),
        ("a.sh", "python run.py --seq_len '96\n", r"a\.sh: a quotation does not end; give the com"),
        ("a.sh", "python run.py --model-hyper-params '{broken'\n", "Expecting property name"),
        ("a.sh", "python run.py --seq_len many\n", "seq_len 'many' .a.sh.: Input should be a va"),
        ("a.yaml", "[1, 2", "a.yaml"),
        ("a.yaml", "[" * 20_000, "a.yaml"),
        ("a.yaml", "model: &all {seq_len: 96, same: *all}", "a.yaml"),
        ("a.json", "{}", "no argument such as seq_len"),
        ("a.json", "3", "no argument such as seq_len"),
    ],
)
def test_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        read_script(write(tmp_path, name, content))


def test_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImporterError, match="not UTF-8"):
        read_script(str(tmp_path / "a.sh"))
    with pytest.raises(ImporterError, match="No such file"):
        read_script(str(tmp_path / "none.sh"))


def test_arguments_that_matter() -> None:
    given = {"seq_len": 96, "n_heads": "8", "dropout": "0.3", "learning_rate": 1, "horizon": 24}
    found = read_arguments({**given, "padding_patch": None, "revin": "True"})
    assert {name: known.value for name, known in found.items()} == {
        "seq_len": 96,
        "n_heads": 8,
        "dropout": 0.3,
        "pred_len": 24,
        "padding_patch": "None",
        "revin": 1,
    }
    assert found["seq_len"].provenance == "--set"
    assert read_arguments({"seq_len": 1}, "a.yaml")["seq_len"].provenance == "a.yaml"


TAIL = "ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128"
READ = {
    "features": "M",
    "seq_len": 336,
    "label_len": 48,
    "pred_len": 96,
    "d_model": 16,
    "n_heads": 4,
    "e_layers": 3,
    "d_layers": 1,
    "d_ff": 128,
    "factor": 1.0,
    "embed": "timeF",
}


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        # yuqinie98/PatchTST and thuml/Autoformer
        (
            f"ETTh1_336_96_PatchTST_ETTh1_{TAIL}_fc1_ebtimeF_dtTrue_Exp_0",
            {"model": "PatchTST", "data": "ETTh1"},
        ),
        # The Time-Series-Library before and since 2024, and a fork without `dt`
        (
            f"long_term_forecast_ECL_96_96_Transformer_custom_{TAIL}_fc1_ebtimeF_dtTrue_Exp_0",
            {"task_name": "long_term_forecast", "model": "Transformer", "data": "custom"},
        ),
        (
            "long_term_forecast_ETTm2_96_96_PatchTST_ETTm2_"
            f"{TAIL}_expand2_dc4_fc1_ebtimeF_dtTrue_test projection_0",
            {"task_name": "long_term_forecast", "model": "PatchTST", "data": "ETTm2"},
        ),
        (
            f"long_term_forecast_x_PatchTST_ETTh2_{TAIL}_fc1_ebtimeF_Exp_1",
            {"task_name": "long_term_forecast", "model": "PatchTST", "data": "ETTh2"},
        ),
        (
            "my_own_id_Autoformer_ETTm1_ftMS_sl96_ll0_pl24_dm8_nh1_el1_dl2_df8_fc3_eblearned_dtX",
            {"model": "Autoformer", "data": "ETTm1", "features": "MS", "seq_len": 96}
            | {"label_len": 0, "pred_len": 24, "d_model": 8, "n_heads": 1, "e_layers": 1}
            | {"d_layers": 2, "d_ff": 8, "factor": 3.0, "embed": "learned"},
        ),
    ],
)
def test_settings(name: str, extra: dict[str, Any]) -> None:
    arguments = read_setting(name, "setting")
    assert arguments is not None
    assert {key: known.value for key, known in arguments.items()} == {**READ, **extra}
    assert {known.provenance for known in arguments.values()} == {"setting"}


@pytest.mark.parametrize("name", ["", "checkpoints", "ETTh1_336_96_PatchTST", TAIL + "_fc1"])
def test_no_setting(name: str) -> None:
    assert read_setting(name, "setting") is None
