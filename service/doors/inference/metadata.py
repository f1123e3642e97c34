"""What the door says of a model: its tensors, and its configuration."""

from __future__ import annotations

from typing import Any

from foretell.bundle.attention import ElementType
from foretell.bundle.manifest import Manifest
from foretell.service.directory import Model
from foretell.service.doors.inference.wire import ModelMetadata, TensorMetadata
from foretell.service.settings import Settings
from foretell.service.tensors import FORECAST, FUTURE_CALENDAR, HISTORY, HISTORY_CALENDAR, MARGIN

PLATFORM = "onnxruntime_onnx"

_FREE = -1
_DATATYPES: dict[ElementType, str] = {"float32": "FP32", "int64": "INT64"}


def input_shapes(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Shape of every input of a window, by name: the batch axis is left out."""
    shapes: dict[str, tuple[int, ...]] = {HISTORY: (manifest.context, len(manifest.channels))}
    if manifest.calendar is not None:
        features = len(manifest.calendar.features)
        shapes[HISTORY_CALENDAR] = (manifest.context, features)
        shapes[FUTURE_CALENDAR] = (manifest.horizon, features)
    return shapes


def forecast_outputs(manifest: Manifest) -> dict[str, TensorMetadata]:
    """The outputs that every run has, by name."""
    outputs = [_tensor(FORECAST, "FP32", manifest.horizon, len(manifest.channels))]
    if manifest.margin_bound is not None:
        outputs.append(_tensor(MARGIN, "FP32"))
    return {output.name: output for output in outputs}


def describe(model: Model, versions: list[str]) -> ModelMetadata:
    """The metadata of a model.

    Args:
        model: The model.
        versions: Those of its name that are loaded.
    """
    manifest = model.manifest
    # Only runs with attention have these.
    attention = [
        _tensor(each.name, _DATATYPES[each.type], *(size or _FREE for size in each.shape))
        for stage in manifest.attention
        for each in stage.outputs
    ]
    return ModelMetadata(
        name=model.name,
        versions=versions,
        platform=PLATFORM,
        inputs=[_tensor(name, "FP32", *shape) for name, shape in input_shapes(manifest).items()],
        outputs=[*forecast_outputs(manifest).values(), *attention],
    )


def configuration(model: Model, settings: Settings) -> dict[str, Any]:
    """What is true of a model of Triton's ModelConfig.

    Args:
        model: The model.
        settings: Limits.
    """
    metadata = describe(model, [model.version])
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": "onnxruntime",
        "version_policy": {"specific": {"versions": [int(model.version)]}},
        # Of a request: larger ones than fit a batch are split.
        "max_batch_size": settings.max_inputs,
        "input": [_configured(tensor) for tensor in metadata.inputs],
        "output": [_configured(tensor) for tensor in metadata.outputs],
        "dynamic_batching": {
            "preferred_batch_size": [model.max_batch],
            "max_queue_delay_microseconds": 0,
        },
        "parameters": {"provider": {"string_value": model.provider}},
    }


def _tensor(name: str, datatype: str, *shape: int) -> TensorMetadata:
    return TensorMetadata(name=name, datatype=datatype, shape=[_FREE, *shape])


def _configured(tensor: TensorMetadata) -> dict[str, Any]:
    # Where there is a largest batch, its axis is left out.
    return {
        "name": tensor.name,
        "data_type": f"TYPE_{tensor.datatype}",
        "dims": tensor.shape[1:],
    }
