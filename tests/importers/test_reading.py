import pickle
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from foretell.importers.errors import ImporterError
from foretell.importers.reading import read_state
from tests.importers.damage import Malicious

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def save(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def assert_is_state(path: Path) -> None:
    state = read_state(path)
    assert list(state) == list(STATE)
    assert all(torch.equal(tensor, STATE[key]) for key, tensor in state.items())


def test_bare_state_dict(tmp_path: Path) -> None:
    assert_is_state(save(tmp_path / "a.pth", STATE))


def test_format_before_torch_1_6(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    assert_is_state(tmp_path / "a.pth")


@pytest.mark.parametrize("holder", ["state_dict", "model_state_dict", "model"])
def test_state_dict_next_to_an_optimizers(tmp_path: Path, holder: str) -> None:
    path = save(tmp_path / "a.pth", {"epoch": 3, holder: STATE, "optimizer": {"lr": 0.1}})
    assert_is_state(path)


@pytest.mark.parametrize("name", ["net", "ema_model", "params"])
def test_state_dict_under_any_name(tmp_path: Path, name: str) -> None:
    moments = {"exp_avg": torch.ones(1)}
    content = {"epoch": 3, name: STATE, "optimizer": moments, "lr_schedulers": {"a": torch.ones(1)}}
    assert_is_state(save(tmp_path / "a.pth", content))
    nested = {"checkpoint": {"model": {"state_dict": STATE}, "optim": moments}}
    assert_is_state(save(tmp_path / "a.pth", nested))


def test_several_state_dicts_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", {"generator": STATE, "critic": STATE})
    with pytest.raises(ImporterError, match="holds several models, 'generator', 'critic'; save"):
        read_state(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ImporterError, match=r"none\.pth: No such file"):
        read_state(tmp_path / "none.pth")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ImporterError, match="directory"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"epoch,loss\n1,0.5\n", "not a PyTorch file"),
        (b"cos\nsystem\n(S'true'\ntR.", "not a PyTorch file"),
        (b"PK\x03\x04 and no more", "damaged or cut off"),
        (b"\x80\x02 and no more", "refused: a pickle may run code"),
        (pickle.dumps({"a": 1}), "refused: a pickle may run code"),
    ],
)
def test_no_checkpoint(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.pth"
    path.write_bytes(content)
    with pytest.raises(ImporterError, match=message):
        read_state(path)


def test_cut_off_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", STATE)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ImporterError, match="damaged or cut off"):
        read_state(path)


def test_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    path = save(tmp_path / "a.pth", {**STATE, "b": Malicious(victim)})
    with pytest.raises(ImporterError, match=r"refused: loading it would call posix\.mkdir"):
        read_state(path)
    assert not victim.exists()


def test_bare_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.pth"
    path.write_bytes(pickle.dumps(Malicious(victim)))
    with pytest.raises(ImporterError, match=r"a\.pth: "):
        read_state(path)
    assert not victim.exists()


def test_whole_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", torch.nn.Linear(2, 2))
    with pytest.raises(ImporterError, match=r"refused.*Linear.*torch\.save\(model\.state_dict"):
        read_state(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.ones(3), "expected a state_dict"),
        ({}, "expected a state_dict"),
        ([1, 2], "expected a state_dict"),
        ({"a": torch.ones(1), "epoch": 3}, "expected tensors only, 'epoch' is of type int"),
        ({1: torch.ones(1)}, "expected tensors only, 1 is of type Tensor"),
    ],
)
def test_no_state_dict(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        read_state(save(tmp_path / "a.pth", content))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path: Path, value: float) -> None:
    path = save(tmp_path / "a.pth", {"a": torch.ones(2), "b": torch.tensor([1.0, value])})
    with pytest.raises(ImporterError, match="b has values that are not finite"):
        read_state(path)


def test_zip_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "no tensors")
    with pytest.raises(ImporterError, match="damaged or cut off"):
        read_state(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_torchscript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.jit.script(torch.nn.Linear(2, 2)).save(path)
    with pytest.raises(ImporterError, match=r"refused: a TorchScript archive holds code.*save it"):
        read_state(path)


def nested(depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = {"run": inner}
    return inner


def test_a_state_dict_in_many_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    # What pickles it needs a frame for each.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        torch.save(nested(2000, STATE), path)
    finally:
        sys.setrecursionlimit(limit)
    assert_is_state(path)


@pytest.mark.parametrize("name", ["state_dict", "self"])
def test_a_dictionary_that_holds_itself(tmp_path: Path, name: str) -> None:
    content: dict[str, object] = {"epoch": 3}
    content[name] = content
    with pytest.raises(ImporterError, match="expected tensors only, 'epoch' is of type int"):
        read_state(save(tmp_path / "a.pth", content))
    content["weights"] = STATE
    if name == "self":
        assert_is_state(save(tmp_path / "a.pth", content))
