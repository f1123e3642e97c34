from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.bundle.attention import Axis, stage
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest, read

# As it was written.
WRITTEN = """
{
  "format": 1, "name": "weather", "version": "3", "created_at": "2024-03-01T13:00:00Z",
  "architecture": "autoformer", "config": {"d_model": 8}, "parameters": 1234,
  "precision": "bfloat16", "channels": ["load", "wind"], "context": 24, "horizon": 6,
  "frequency": "h", "calendar": {"encoding": "scaled", "features": ["hour", "day_of_week"]},
  "scaler": {"mean": [1.0, -2.5], "std": [0.1, 3.0]},
  "attention": [
    {
      "name": "trend.encoder.0.self", "kind": "softmax", "heads": 4,
      "query": {
        "length": 11, "start": -24, "stride": 2, "width": 4, "end": 0, "padding": 0
      },
      "key": {
        "length": 11, "start": -24, "stride": 2, "width": 4, "end": 0, "padding": 0
      },
      "per_channel": true
    },
    {
      "name": "decoder.0.cross", "kind": "autocorrelation", "heads": 2,
      "query": {
        "length": 27, "start": -12, "stride": 1, "width": 1, "end": null, "padding": 0
      },
      "key": {
        "length": 27, "start": -24, "stride": 1, "width": 1, "end": null, "padding": 3
      },
      "per_channel": false
    }
  ],
  "margin_bound": 1e-06, "test": null, "calibration": null,
  "verification": {
    "reference": "torch float64", "provider": "CPUExecutionProvider", "emulates": "bfloat16",
    "checks": []
  },
  "probe_tolerance": 0.0001, "opset": 23, "libraries": {"torch": "2.13.0"},
  "files": {"weights.bin": "abab"}
}
"""


def changed(stage_index: int, **fields: object) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(WRITTEN)
    manifest["attention"][stage_index] |= fields
    return manifest


def test_every_field_is_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(WRITTEN)
    manifest = read(tmp_path)
    patches = Axis(of="patches", length=11, start=-24, stride=2, width=4, end=0)
    query, key = Axis(length=27, start=-12), Axis(length=27, start=-24, padding=3)
    assert manifest.attention == (
        stage("trend.encoder.0.self", "softmax", "dense", 4, patches, patches, channels=2),
        stage("decoder.0.cross", "autocorrelation", "circulant", 2, query, key),
    )
    assert [output.shape for one in manifest.attention for output in one.outputs] == [
        (2, 4, 11, 11),
        (None,),
        (None,),
        (None,),
    ]
    assert (manifest.format, manifest.devices) == (2, ("cuda",))
    assert (manifest.rewrites, manifest.plain) == ((), ())
    given = json.loads(WRITTEN)
    kept = manifest.model_dump(mode="json")
    assert {name: kept[name] for name in given} == given | {
        "format": 2,
        "scaler": given["scaler"] | {"level": None, "deviation": None},
        "verification": given["verification"] | {"deviations": []},
        "attention": kept["attention"],
    }


@pytest.mark.parametrize("precision", ["float32", "float16", None])
def test_other_precisions_ran_on_all_devices(precision: str | None) -> None:
    fields = json.loads(WRITTEN) | {"precision": precision}
    if precision is None:
        del fields["precision"]
    assert Manifest.model_validate(fields).devices == ("cuda", "cpu")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        (changed(1, kind="linear"), "attention.1.kind: "),
        (changed(1, heads=0), "attention.1.heads: "),
        (changed(0, form="dense"), "attention.0.form: "),
        (changed(0, query=None), "attention.0.query: "),
        (changed(0, query={"length": 2, "width": "wide"}), "attention.0.query.width: "),
        (changed(1, key={"length": 27, "padding": 27}), "attention.1.key: padding: "),
        (changed(1, key={"length": 26}), "attention.1: key: "),
        (json.loads(WRITTEN) | {"attention": [5]}, "attention.0: "),
        (json.loads(WRITTEN) | {"attention": None}, "attention: "),
        (json.loads(WRITTEN) | {"channels": 5}, "channels: "),
        (json.loads(WRITTEN) | {"channels": ["load", 5]}, "channels.1: "),
        (json.loads(WRITTEN) | {"horizon": 0}, "horizon: "),
        ({"format": 1}, "channels: "),
    ],
)
def test_errors_name_the_place(tmp_path: Path, fields: dict[str, Any], place: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(BundleError) as raised:
        read(tmp_path)
    assert str(raised.value).startswith(f"{path}: {place}")
