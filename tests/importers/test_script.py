import json
from pathlib import Path

import pytest

from foretell.importers.errors import ImporterError
from foretell.importers.script import Run, read_script

LOOPED = """\
# a comment with --seq_len 1
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


def test_shell_script_with_variables_and_a_loop(tmp_path: Path) -> None:
    script = read_script(write(tmp_path, "etth1.sh", LOOPED))
    common = {"model": "PatchTST", "data": "ETTh1", "seq_len": 336, "dropout": 0.3}
    assert values(script) == [{**common, "pred_len": 96}, {**common, "pred_len": 192}]
    assert script[0].complete
    assert script[0].arguments["seq_len"].provenance == "etth1.sh"


def test_shell_script_with_several_commands(tmp_path: Path) -> None:
    content = "python run.py --pred_len 96 --d_ff 32\r\npython run.py --pred_len=192 --d_ff 64\r\n"
    script = read_script(write(tmp_path, "a.sh", content))
    assert values(script) == [{"pred_len": 96, "d_ff": 32}, {"pred_len": 192, "d_ff": 64}]


def test_command_of_tfb_with_json(tmp_path: Path) -> None:
    content = (
        "python ./scripts/run_benchmark.py --strategy-args '{\"horizon\": 96}' --model-name "
        '"time_series_library.PatchTST" --model-hyper-params '
        '\'{"d_model": 16, "n_heads": 4, "norm": true, "seq_len": 336}\''
    )
    assert values(read_script(write(tmp_path, "tfb.sh", content))) == [
        {"pred_len": 96, "d_model": 16, "n_heads": 4, "seq_len": 336}
    ]


def test_arguments_themselves() -> None:
    script = read_script("--seq_len 96 --embed fixed --individual --revin 0")
    assert values(script) == [{"seq_len": 96, "embed": "fixed", "revin": 0}]
    assert script[0].arguments["revin"].provenance == "--config"


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_yaml_and_json(tmp_path: Path, name: str) -> None:
    content = {"model_hyper_params": {"seq_len": 96, "revin": True}, "batch_size": 32}
    script = read_script(write(tmp_path, name, json.dumps(content)))
    assert values(script) == [{"seq_len": 96, "revin": 1}]
    # What such a file leaves out may have had any value.
    assert not script[0].complete


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.sh", "echo nothing\n", "no command with arguments"),
        ("a.sh", "python run.py --seq_len '96\n", r"a\.sh: line 1: a quotation does not end"),
        ("a.sh", "python run.py --model-hyper-params '{broken'\n", "Expecting property name"),
        ("a.sh", "python run.py --seq_len many\n", "seq_len 'many' .a.sh.: expected a number"),
        ("a.yaml", "[1, 2", "a.yaml"),
        ("a.yaml", "[" * 20_000, "a.yaml"),
        ("a.yaml", "model: &all {seq_len: 96, same: *all}", "a.yaml"),
        ("a.json", "{}", "no argument such as seq_len"),
        ("a.json", "3", "no argument such as seq_len"),
    ],
)
def test_refuses(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        read_script(write(tmp_path, name, content))


def test_refuses_what_is_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImporterError, match="not UTF-8"):
        read_script(str(tmp_path / "a.sh"))
    with pytest.raises(ImporterError, match="No such file"):
        read_script(str(tmp_path / "none.sh"))


VARIABLES = "heads=2 # small\nn=8; d=64\nexport steps=96 label=48\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VARIABLES + "python run.py --n_heads $heads --d_ff $d", {"n_heads": 2, "d_ff": 64}),
        (
            VARIABLES + "python run.py --seq_len ${steps} --label_len=$label --e_layers $n",
            {"seq_len": 96, "label_len": 48, "e_layers": 8},
        ),
        ("list='--n_heads 4 --d_ff 8'\npython run.py $list", {"n_heads": 4, "d_ff": 8}),
    ],
)
def test_variables(tmp_path: Path, text: str, expected: dict[str, int]) -> None:
    (run,) = read_script(write(tmp_path, "a.sh", text))
    assert {name: argument.value for name, argument in run.arguments.items()} == expected
    assert run.complete
    assert not run.unread


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("$heads", "$heads"),
        ("$1", "$1"),
        ("$((2*4))", "$((2*4))"),
        ("${a[0]}", "${a[0]}"),
        ("${1:-8}", "${1:-8}"),
        ("`echo 8`", "`echo 8`"),
        ("'$heads'", "$heads"),
        ("", "no value"),
        ('""', "no value"),
        ("{1..3}", None),
    ],
)
def test_what_only_a_run_would_tell_is_unread(tmp_path: Path, value: str, said: str | None) -> None:
    text = f"python run.py --seq_len 96 --n_heads {value} --d_ff 8\n"
    (run,) = read_script(write(tmp_path, "a.sh", text))
    assert "n_heads" not in run.arguments
    assert run.arguments["d_ff"].value == 8
    # Either it is asked for, or nothing is taken from the defaults.
    if said is None:
        assert not run.complete
    else:
        assert run.unread == {"n_heads": f"a.sh has {said}"}
        assert run.complete


@pytest.mark.parametrize("word", ["$@", '"${options[@]}"', "$2", "$(cat options)"])
def test_a_variable_may_hold_any_option(tmp_path: Path, word: str) -> None:
    for text in (f"python run.py --seq_len 96 {word}", f"python run.py {word} --seq_len 96"):
        (run,) = read_script(write(tmp_path, "a.sh", text))
        assert not run.complete


def test_a_program_and_an_output_hold_no_options(tmp_path: Path) -> None:
    text = "GPU=$1 python $script --seq_len 96 >$log 2>&1 | tee $log\n"
    (run,) = read_script(write(tmp_path, "a.sh", text))
    assert run.complete


def test_unread_in_yaml_and_json(tmp_path: Path) -> None:
    (run,) = read_script(write(tmp_path, "a.yaml", "seq_len: 96\nn_heads: ${heads}\n"))
    assert run.unread == {"n_heads": "a.yaml has ${heads}"}
    text = 'python run.py --model-hyper-params \'{"n_heads": "$n", "d_ff": 8}\''
    (run,) = read_script(write(tmp_path, "a.sh", text))
    assert run.arguments["d_ff"].value == 8
    assert run.unread == {"n_heads": "a.sh has $n"}
    (run,) = read_script(write(tmp_path, "a.sh", text.replace('"$n"', "$n") + " --seq_len 96"))
    assert list(run.arguments) == ["seq_len"]
    assert not run.complete
