import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from foretell.importers.errors import ImporterError
from foretell.importers.reading import read_state
from tests.importers.damage import Malicious

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


def save(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


MOMENTS = {"exp_avg": torch.ones(1)}
OPTIMIZER = {"optimizer": MOMENTS, "lr_schedulers": {"a": torch.ones(1)}}


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        *(
            {"epoch": 3, holder: STATE, "optimizer": {"lr": 0.1}}
            for holder in ("state_dict", "model")
        ),
        *({"epoch": 3, name: STATE, **OPTIMIZER} for name in ("net", "ema_model", "params")),
        {"model_state_dict": STATE, "other": {"b": torch.ones(1)}},
        {"checkpoint": {"model": {"state_dict": STATE}, "optim": MOMENTS}},
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_state_dict_at_top_level_or_under_any_key(
    tmp_path: Path, content: object, is_zip: bool
) -> None:
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=is_zip)
    assert_is_state(tmp_path / "a.pth")


def assert_is_state(path: Path) -> None:
    state = read_state(path)
    assert list(state) == list(STATE)
    assert all(torch.equal(tensor, STATE[key]) for key, tensor in state.items())


def test_missing_file_or_folder(tmp_path: Path) -> None:
    with pytest.raises(ImporterError, match=r"none\.pth: No such file"):
        read_state(tmp_path / "none.pth")
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.nn.Linear(2, 2), r"refused.*Linear.*torch\.save\(model\.state_dict"),
        (torch.ones(3), "expected a state_dict"),
        ({}, "expected a state_dict"),
        ([1, 2], "expected a state_dict"),
        ({"a": torch.ones(1), "epoch": 3}, "expected tensors only, 'epoch' is of type int"),
        ({1: torch.ones(1)}, "expected tensors only, 1 is of type Tensor"),
        (
            {"generator": STATE, "critic": STATE},
            "holds several models, 'generator', 'critic'; save",
        ),
        ({"b": torch.tensor([1.0, torch.nan])}, "b has values that are not finite"),
        ({"b": torch.tensor([1.0, torch.inf])}, "b has values that are not finite"),
    ],
)
def test_no_state_dict(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        read_state(save(tmp_path / "a.pth", content))


def test_cut_off_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", STATE)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ImporterError, match="damaged or cut off"):
        read_state(path)


@pytest.mark.parametrize("is_bare", [True, False])
def test_pickle_that_runs_code_is_refused(tmp_path: Path, is_bare: bool) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.pth"
    if is_bare:
        path.write_bytes(pickle.dumps(Malicious(victim)))
    else:
        torch.save({**STATE, "b": Malicious(victim)}, path)
    message = r"a\.pth: " if is_bare else r"refused: loading it would call posix\.mkdir"
    with pytest.raises(ImporterError, match=message):
        read_state(path)
    assert not victim.exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_other_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "no tensors")
    with pytest.raises(
        ImporterError, match=r"damaged or cut off .*; if it is another archive, save"
    ):
        read_state(path)
    torch.jit.script(torch.nn.Linear(2, 2)).save(path)
    with pytest.raises(ImporterError, match=r"refused: a TorchScript archive holds code.*save it"):
        read_state(path)


def test_state_dict_in_many_dictionaries(tmp_path: Path) -> None:
    path, content = tmp_path / "a.pth", STATE
    for _ in range(2000):
        content = {"run": content}
    # The pickler recurses into each level; that in C has a limit of its own.
    in_python = SimpleNamespace(__name__="pickle", Pickler=pickle._Pickler)  # type: ignore[attr-defined]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        torch.save(content, path, pickle_module=in_python)
    finally:
        sys.setrecursionlimit(limit)
    assert_is_state(path)


@pytest.mark.parametrize("name", ["state_dict", "self"])
def test_dictionary_that_holds_itself(tmp_path: Path, name: str) -> None:
    content: dict[str, object] = {"epoch": 3}
    content[name] = content
    with pytest.raises(ImporterError, match="expected tensors only, 'epoch' is of type int"):
        read_state(save(tmp_path / "a.pth", content))
    content["weights"] = STATE
    if name == "self":
        assert_is_state(save(tmp_path / "a.pth", content))
