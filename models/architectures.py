"""The architectures by name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from foretell.models.autoformer import Autoformer, AutoformerConfig
from foretell.models.forecaster import Forecaster, ForecasterConfig
from foretell.models.patchtst import PatchTST, PatchTSTConfig
from foretell.models.transformer import Transformer, TransformerConfig

AnyConfig = Annotated[
    AutoformerConfig | PatchTSTConfig | TransformerConfig, Field(discriminator="architecture")
]

ARCHITECTURES: dict[str, type[ForecasterConfig]] = {
    "autoformer": AutoformerConfig,
    "patchtst": PatchTSTConfig,
    "transformer": TransformerConfig,
}


def build(config: ForecasterConfig) -> Forecaster:
    """Make an untrained model.

    Raises:
        TypeError: the config is of no architecture.
    """
    match config:
        case AutoformerConfig():
            return Autoformer(config)
        case PatchTSTConfig():
            return PatchTST(config)
        case TransformerConfig():
            return Transformer(config)
    raise TypeError(f"{type(config).__name__} is the config of no architecture")
