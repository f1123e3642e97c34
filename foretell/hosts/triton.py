"""A bundle as a model of a Triton repository, for Triton's onnxruntime backend."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from foretell.bundle import checksums, layout
from foretell.bundle import manifest as manifests
from foretell.bundle.manifest import Manifest
from foretell.errors import RefusedError
from foretell.service.arrays import input_shapes

CONFIG = "config.pbtxt"
_GRAPH = "model.onnx"
# Largest batch. Users may change it in the file, which further versions do not overwrite.
_MAX_BATCH = 64
_IS_TENSOR = re.compile(r"(input|output) ")

_HEAD = f"""\
# Written by `foretell export --triton`; the fields are those of Triton's model_config.proto.
name: %s
backend: "onnxruntime"
default_model_filename: "{_GRAPH}"
max_batch_size: {_MAX_BATCH}
version_policy {{ all {{ }} }}
# What waits while a batch runs is the next one: no delay to tune.
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
# No CUDA graphs: onnxruntime's are of one shape, and batches are of any size.
instance_group [ {{ kind: %s }} ]
"""
# On a CPU-only model, one thread for each instance, as in a session of `foretell serve`.
_THREADS = """\
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""


def write(bundle: Path, repository: Path) -> Path:
    """Write a bundle into a Triton repository, as a version of its model.

    Args:
        bundle: Folder of the bundle.
        repository: Triton's model repository; created if missing.

    Returns:
        The folder of the version.

    Raises:
        BundleError: the bundle is damaged.
        RefusedError: the version exists, or the model's configuration has other tensors or is for
            other devices.
    """
    manifest = manifests.read(bundle)
    checksums.check(bundle, manifest.files)
    model = repository / manifest.name
    place, config = model / manifest.version, model / CONFIG
    if place.exists():
        raise RefusedError(f"{place}: exists already")
    is_first = not config.exists()
    if not is_first and not _serves(config.read_text(), manifest):
        raise RefusedError(
            f"{config}: is not what {manifest.name}@{manifest.version} needs; versions of a model "
            "share one configuration"
        )
    model.mkdir(parents=True, exist_ok=True)
    # Triton ignores folders whose names are not numbers.
    with TemporaryDirectory(prefix=".", dir=model) as hidden:
        whole = Path(hidden, manifest.version)
        whole.mkdir()
        shutil.copy2(bundle / layout.FORECAST_GRAPH, whole / _GRAPH)
        # The graph refers to the weights by this name.
        shutil.copy2(bundle / layout.WEIGHTS, whole / layout.WEIGHTS)
        if is_first:
            Path(hidden, CONFIG).write_text(configuration(manifest))
            Path(hidden, CONFIG).replace(config)
        whole.rename(place)
    return place


def _serves(text: str, manifest: Manifest) -> bool:
    """Whether a configuration fits a bundle; users may have tuned it."""
    tensors = [line for line in text.splitlines(keepends=True) if _IS_TENSOR.match(line)]
    has_device = _kind(manifest) != "KIND_CPU" or "KIND_CPU" in text
    return has_device and tensors == [*_tensors(manifest)]


def _kind(manifest: Manifest) -> str:
    return "KIND_AUTO" if "cuda" in manifest.devices else "KIND_CPU"


def configuration(manifest: Manifest) -> str:
    """The model's `config.pbtxt` in protobuf's text format."""
    kind = _kind(manifest)
    parts = [_HEAD % (json.dumps(manifest.name), kind)]
    if kind == "KIND_CPU":
        parts.append(_THREADS)
    return "".join([*parts, *_tensors(manifest)])


def _tensors(manifest: Manifest) -> Iterator[str]:
    for name, shape in input_shapes(manifest).items():
        yield _tensor("input", name, *shape)
    yield _tensor("output", "forecast", manifest.horizon, len(manifest.targets))
    if (drawn := manifest.distribution) is not None:
        shape = manifest.horizon, len(manifest.targets), len(drawn.parameters)
        yield _tensor("output", "distribution", *shape)
    if manifest.margin_bound is not None:
        yield _tensor("output", "margin")


def _tensor(kind: str, name: str, *shape: int) -> str:
    """A tensor without its batch axis; Triton requires at least one other axis."""
    dims = f"dims: [ {', '.join(map(str, shape or (1,)))} ]"
    reshape = "" if shape else " reshape { shape: [ ] }"
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_FP32 {dims}{reshape} }} ]\n'
