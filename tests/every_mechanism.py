"""Small Transformers with mechanisms of every form of evidence, and with every mechanism."""

from __future__ import annotations

import json
from pathlib import Path

from foretell.models.attention.mechanism import MECHANISMS
from tests.docs.plugged import bundles_with
from tests.models.attention.places import PLACES, allowed, default

# Those of the places.
SIZES = [
    "--arch=transformer",
    "--set=model.label=8",
    "--set=model.d_model=8",
    "--set=model.heads=2",
    "--set=model.d_ff=8",
]
AT_ONCE = 6
# Of each form of evidence, and one that chooses: encoder layers, and mechanisms by stage.
FORMS = {"forms": (4, ["probsparse", "local", "autocorrelation", "fourier", "softmax", "softmax"])}


def models() -> dict[str, tuple[int, list[str]]]:
    """Encoder layers, and the mechanism of each stage: every one is in one stage at least."""
    left = [name for name in MECHANISMS if allowed(name, PLACES["decoder"])]
    others = [name for name in MECHANISMS if name not in left]
    found = {}
    for start in range(0, len(others), AT_ONCE):
        some = others[start : start + AT_ONCE]
        found[f"encoder-{start}"] = len(some), [*some, "softmax", "softmax"]
    decoder: list[str] = []
    while left:
        own = left.pop(0)
        # Exports take their time: where another can be, it saves a layer.
        cross = next((name for name in left if allowed(name, PLACES["cross"])), "softmax")
        left = [name for name in left if name != cross]
        decoder += [own, cross]
    for start in range(0, len(decoder), AT_ONCE):
        found[f"decoder-{start}"] = 1, ["softmax", *decoder[start : start + AT_ONCE]]
    return found


MODELS = models()


def train_and_export(folder: Path, models: dict[str, tuple[int, list[str]]]) -> None:
    """By the command line: checkpoints `folder / name`, and a repository `folder / "models"`."""
    flags = {}
    for name, (encoder, stages) in models.items():
        settings = {
            "model": {"attention": [default(each).model_dump(mode="json") for each in stages]}
        }
        config = folder / f"{name}.yaml"
        config.write_text(json.dumps(settings))
        decoder = (len(stages) - encoder) // 2
        layers = [f"--set=model.encoder_layers={encoder}", f"--set=model.decoder_layers={decoder}"]
        flags[name] = [f"--config={config}", *SIZES, *layers]
    plugged = folder / "nothing"
    plugged.mkdir()
    bundles_with("foretell.models.attention", plugged, flags)
