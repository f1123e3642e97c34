from typing import get_args

import pytest
from pydantic import TypeAdapter

from foretell.bundle.manifest import Architecture
from foretell.models.architectures import ARCHITECTURES, AnyConfig, build
from foretell.models.forecaster import ForecasterConfig

SIZES = {
    "channels": 2,
    "context": 24,
    "horizon": 4,
    "d_model": 8,
    "heads": 2,
    "d_ff": 8,
    "encoder_layers": 1,
}
EXTRAS = {"autoformer": {"label": 4}, "transformer": {"label": 4}, "patchtst": {}}


def test_the_manifest_knows_every_architecture() -> None:
    assert set(ARCHITECTURES) == set(get_args(Architecture))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_config_is_found_and_built_by_name(name: str) -> None:
    adapter: TypeAdapter[ForecasterConfig] = TypeAdapter(AnyConfig)
    config = adapter.validate_python({"architecture": name, **SIZES, **EXTRAS[name]})
    assert type(config) is ARCHITECTURES[name]
    assert build(config).config is config
    assert adapter.validate_json(config.model_dump_json()) == config


def test_refuses_the_config_of_no_architecture() -> None:
    with pytest.raises(TypeError, match="config of no architecture"):
        build(ForecasterConfig(architecture="other", **SIZES))  # type: ignore[arg-type]
