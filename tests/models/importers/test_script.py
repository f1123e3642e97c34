import json
from pathlib import Path

import pytest

from foretell.models.importers.errors import ImporterError
from foretell.models.importers.script import Script, read_script

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


def values(script: Script) -> list[dict[str, object]]:
    return [{name: known.value for name, known in run.items()} for run in script.runs]


def write(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    return str(folder / name)


def test_shell_script_with_variables_and_a_loop(tmp_path: Path) -> None:
    script = read_script(write(tmp_path, "etth1.sh", LOOPED))
    common = {"model": "PatchTST", "data": "ETTh1", "seq_len": 336, "dropout": 0.3}
    assert values(script) == [{**common, "pred_len": 96}, {**common, "pred_len": 192}]
    assert script.complete
    assert script.runs[0]["seq_len"].origin == "etth1.sh"


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
    assert script.runs[0]["revin"].origin == "--config"


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_yaml_and_json(tmp_path: Path, name: str) -> None:
    content = {"model_hyper_params": {"seq_len": 96, "revin": True}, "batch_size": 32}
    script = read_script(write(tmp_path, name, json.dumps(content)))
    assert values(script) == [{"seq_len": 96, "revin": 1}]
    # What such a file leaves out may have had any value.
    assert not script.complete


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.sh", "echo nothing\n", "no command with arguments"),
        ("a.sh", "python run.py --seq_len '96\n", "No closing quotation"),
        ("a.sh", "python run.py --model-hyper-params '{broken'\n", "Expecting property name"),
        ("a.sh", "python run.py --seq_len many\n", "seq_len 'many' .a.sh.: expected a number"),
        ("a.yaml", "[1, 2", "a.yaml"),
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
