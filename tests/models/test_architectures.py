import subprocess
import sys
from typing import Literal

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.forecaster import ARCHITECTURES, AnyConfig, ForecasterConfig
from foretell.models.registry import Registry
from tests.support.process import ROOT

SIZES = {"channels": 2, "context": 24, "horizon": 4}
ADAPTER: TypeAdapter[ForecasterConfig] = TypeAdapter(AnyConfig)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_config_is_found_and_built_by_name(name: str) -> None:
    config = ADAPTER.validate_python({"architecture": name, **SIZES})
    assert type(config) is ARCHITECTURES[name]
    assert config.build().config is config
    assert ADAPTER.validate_json(ADAPTER.dump_json(config)) == config
    assert ADAPTER.validate_python(config) is config


@pytest.mark.parametrize("name", ["oracle", None, 3])
def test_refuses_the_config_of_no_architecture(name: object) -> None:
    with pytest.raises(ValidationError, match=f"expected one of autoformer, .*, got {name!r}"):
        ADAPTER.validate_python({"architecture": name, **SIZES})


RESIDUAL = ["residual-softmax", "residual-softmax", "softmax"]


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("autoformer", RESIDUAL),
        ("itransformer", RESIDUAL[:2]),
        ("patchtst", RESIDUAL[:2]),
        ("transformer", RESIDUAL),
    ],
)
def test_what_a_layer_hands_on_reaches_the_next(name: str, attention: list[str]) -> None:
    fields = {"architecture": name, "attention": attention, **SIZES}
    model = ARCHITECTURES.read(fields).build().eval()
    given: list[torch.Tensor | None] = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.residual:
            module.register_forward_pre_hook(
                lambda _, __, options: given.append(options["inherited"]), with_kwargs=True
            )
    model(torch.randn(1, 24, 2))
    first, second = given
    assert first is None
    assert second is not None


def test_names_are_unique() -> None:
    class Other(ForecasterConfig):
        architecture: Literal["patchtst"] = "patchtst"

    with pytest.raises(ValueError, match="architecture: there are two of the name 'patchtst'"):
        ARCHITECTURES.add(Other)


def test_threads_that_ask_at_once_all_know_every_name() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from foretell.models.forecaster import ARCHITECTURES\n"
        "with ThreadPoolExecutor(6) as threads:\n"
        "    seen = list(threads.map(lambda _: tuple(ARCHITECTURES), range(6)))\n"
        "assert len(set(seen)) == 1 and len(seen[0]) > 3, seen\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_file_of_the_folder_is_found() -> None:
    found = Registry[ForecasterConfig](
        "foretell.models.architectures", "architecture", ForecasterConfig
    )
    # They add themselves to the one registry, whoever imports them.
    assert len(found) == 0
    assert {"autoformer", "patchtst", "transformer"} <= set(ARCHITECTURES)
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    with pytest.raises(KeyError):
        ARCHITECTURES["oracle"]
