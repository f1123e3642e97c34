"""Small bundles with real graphs, whose forecasts one line of numpy computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from foretell.bundle import calibration, example, layout
from foretell.bundle.attention import AttentionStage, Axis, Choice, Output, stage
from foretell.bundle.checksums import sha256
from foretell.bundle.covariates import FUTURE_COVARIATES, NO_COVARIATES, Covariates
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import CalibrationReport, Coverage, Verification
from foretell.bundle.scaler import Scaler
from foretell.timeaxis import timestamps
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

_OPSET = 20
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Spec:
    """A model that repeats its last row, times 1, 2, 3, … by channel.

    Attributes:
        targets: The channels it forecasts; all if none are named.
        observed_steps: If set, missing values may be given to it, which count as 0.
        burn: Matrix products it wastes on each window, to be slow.
        ballast: MiB of further weights, by which each window is multiplied for nothing.
        fails: Whether the graph fails on a last value of 1 or more.
        margin_bound: If set, the graphs have a margin: the first value of a one-channel history.
        calibrated: Passes over the horizon with quantiles, from 99 windows each: the forecast plus
            (level - 0.5) * step, counted from 1, in units of the history's standard deviation.
        example: Rows of history of the window that it carries, if it does: of each channel its
            number from 1, times the row's.
        changes: Fields of the manifest to write differently.
    """

    name: str = "repeat"
    version: str = "1"
    channels: tuple[str, ...] = ("load",)
    targets: tuple[str, ...] = ()
    observed_steps: int | None = None
    context: int = 8
    horizon: int = 4
    frequency: str = "h"
    with_calendar: bool = False
    covariates: Covariates | None = None
    stages: tuple[AttentionStage, ...] = ()
    burn: int = 0
    ballast: int = 0
    fails: bool = False
    margin_bound: float | None = None
    calibrated: int = 0
    example: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def calendar(self) -> Calendar | None:
        if not self.with_calendar:
            return None
        return Calendar.for_frequency(Frequency.parse(self.frequency), "scaled")

    @property
    def columns(self) -> list[int]:
        return [self.channels.index(name) for name in self.targets or self.channels]

    @property
    def scale(self) -> Floats:
        return np.arange(1, len(self.channels) + 1, dtype=np.float32)

    def weights(self, name: str) -> Floats:
        """Weights of the values of an input of covariates, without the axis of the horizon."""
        assert self.covariates is not None
        shape = self.covariates.shapes(self.context, 1)[name]
        weights = np.linspace(0.25, 1, int(np.prod(shape)), dtype=np.float32)
        return weights.reshape(shape)

    def forecast(
        self,
        history: Floats,
        future_calendar: Floats | None = None,
        covariates: Mapping[str, Floats] | None = None,
    ) -> Floats:
        """Output of the graph: `[batch, horizon, targets]`.

        Every value of an input of covariates has a weight of its own.
        """
        last = history[:, -1:] * self.scale
        repeated = np.repeat(last, self.horizon, axis=1)
        if future_calendar is not None:
            repeated = repeated + future_calendar.sum(axis=2, keepdims=True)
        for name, values in (covariates or {}).items():
            weighted = values * self.weights(name)
            axes = 2 if name == FUTURE_COVARIATES else tuple(range(1, weighted.ndim))
            repeated = repeated + weighted.sum(axis=axes).reshape(len(weighted), -1, 1)
        return repeated.astype(np.float32)[..., self.columns]


def softmax_stage(
    context: int = 8, *, name: str = "encoder.0.self", channels: int | None = None
) -> AttentionStage:
    """Patches of 4 steps with stride 2 attend to each other, with two heads.

    Each channel by itself, if there is a number of them.
    """
    patches = Axis(of="patches", length=(context - 4) // 2 + 1, start=-context, stride=2, width=4)
    return stage(name, "softmax", "dense", 2, patches, patches, channels=channels)


def lag_stage(context: int = 8, *, name: str = "encoder.1.self") -> AttentionStage:
    """The history against itself, two lags; the manifest leaves their number open."""
    steps = Axis(length=context, start=-context)
    return stage(name, "autocorrelation", "circulant", 2, steps, steps)


def channel_stage(channels: int, *, name: str = "mixing.0") -> AttentionStage:
    """The channels attend to each other, with two heads."""
    axis = Axis(of="channels", length=channels)
    return stage(name, "causal-mean", "dense", 2, axis, axis)


def cluster_stage(context: int = 8, *, name: str = "routing.1") -> AttentionStage:
    """Each step keeps two of four clusters, but the second of two heads one.

    It returns the scores, too; what may not be kept has one of minus infinity.
    """
    steps = Axis(length=context, start=-context)
    made = stage(name, "router", "sparse", 2, steps, Axis(of="clusters", length=4), kept=2)
    scores = Output(name=f"{name}.scores", type="float32", shape=(2, context, 4))
    choice = Choice(chosen=f"{name}.keys", scores=scores.name)
    return made.model_copy(update={"outputs": (*made.outputs, scores), "choices": (choice,)})


def mapless_stage(context: int = 8, *, name: str = "state.2") -> AttentionStage:
    """A mechanism without a map."""
    steps = Axis(length=context, start=-context)
    return stage(name, "selective-scan", "none", 1, steps, steps)


def write_bundle(repository: Path, spec: Spec) -> Path:
    """Write the bundle of a spec; returns its folder."""
    folder = repository / spec.name / spec.version
    folder.mkdir(parents=True)
    weights = {"scale": spec.scale.tobytes()}
    if spec.ballast:
        weights["ballast"] = _ballast(spec).tobytes()
    (folder / layout.WEIGHTS).write_bytes(b"".join(weights.values()))
    for file, stages in ((layout.FORECAST_GRAPH, ()), (layout.EXPLAIN_GRAPH, spec.stages)):
        model = _graph(spec, stages)
        offset = 0
        for tensor in model.graph.initializer:
            if tensor.name in weights:
                size = len(weights[tensor.name])
                set_external_data(tensor, layout.WEIGHTS, offset=offset, length=size)
                tensor.ClearField("raw_data")
                offset += size
        (folder / file).write_bytes(model.SerializeToString())
    _write_probes(folder, spec)
    if spec.calibrated:
        _write_calibration(folder, spec)
    if spec.example:
        _write_example(folder, spec)
    rewrite_manifest(folder, spec)
    return folder


def rewrite_manifest(folder: Path, spec: Spec) -> None:
    """Write the manifest, with the sums of the files as they are."""
    files = [layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH, layout.WEIGHTS, layout.PROBES]
    report = None
    if spec.calibrated:
        files.append(layout.CALIBRATION)
        report = CalibrationReport(
            floor=0.1,
            steps=spec.calibrated * spec.horizon,
            windows=(99,) * spec.calibrated,
            disjoint=(9,) * spec.calibrated,
            coverage=tuple(
                Coverage(
                    level=0.8,
                    first_step=1 + part * spec.horizon,
                    last_step=(1 + part) * spec.horizon,
                    windows=20,
                    coverage=0.75,
                    width=1.5,
                )
                for part in range(spec.calibrated)
            ),
        )
    if spec.example:
        files.append(layout.EXAMPLE)
    manifest = Manifest(
        name=spec.name,
        version=spec.version,
        created_at=datetime(2024, 1, 1, tzinfo=UTC),
        architecture="patchtst",
        config={},
        parameters=len(spec.channels),
        channels=spec.channels,
        targets=spec.targets or spec.channels,
        context=spec.context,
        horizon=spec.horizon,
        frequency=spec.frequency,
        calendar=spec.calendar,
        covariates=spec.covariates,
        observed_steps=spec.observed_steps,
        scaler=Scaler(mean=(0.0,) * len(spec.channels), std=(2.0,) * len(spec.channels)),
        attention=spec.stages,
        margin_bound=spec.margin_bound,
        test=None,
        calibration=report,
        verification=Verification(reference="numpy", provider="CPUExecutionProvider", checks=()),
        probe_tolerance=1e-4,
        opset=_OPSET,
        libraries={},
        files={name: sha256(folder / name) for name in files},
    ).model_copy(update=spec.changes)
    (folder / layout.MANIFEST).write_text(manifest.model_dump_json())


def _write_probes(folder: Path, spec: Spec) -> None:
    rng = np.random.default_rng(0)
    history = rng.uniform(-0.9, 0.9, (3, spec.context, len(spec.channels))).astype(np.float32)
    arrays = {"history": history}
    if spec.calendar is not None:
        features = len(spec.calendar.features)
        for name, steps in (("history_calendar", spec.context), ("future_calendar", spec.horizon)):
            arrays[name] = rng.normal(size=(3, steps, features)).astype(np.float32)
    covariates = {}
    if spec.covariates is not None:
        for name, shape in spec.covariates.shapes(spec.context, spec.horizon).items():
            covariates[name] = rng.uniform(size=(3, *shape)).astype(np.float32)
    forecast = spec.forecast(history, arrays.get("future_calendar"), covariates)
    arrays |= covariates
    np.savez(folder / layout.PROBES, forecast=forecast, **arrays)


def _write_example(folder: Path, spec: Spec) -> None:
    times = Frequency.parse(spec.frequency).steps_from(np.datetime64("2024-01-01"), spec.example)
    rows = np.arange(1.0, spec.example + spec.horizon + 1)[:, None] * spec.scale.astype(float)
    history, actual = rows[: spec.example], rows[spec.example :, spec.columns]
    texts = np.array(timestamps.render(times, None))
    known = spec.covariates or NO_COVARIATES
    steps = np.arange(len(rows))
    sizes = [each.features if each.type == "category" else 2 for each in known.future]
    future = np.stack([steps % size for size in sizes], axis=1) if sizes else None
    static = np.zeros(len(known.static)) if known.static else None
    found = example.Example(history, texts, actual, "a house", future, static)
    example.write(folder, found)


def _write_calibration(folder: Path, spec: Spec) -> None:
    levels = calibration.stored_levels([99])
    step = np.arange(1, spec.calibrated * spec.horizon + 1)[:, None]
    offsets = (levels[:, None, None] - 0.5) * step * np.ones(len(spec.columns))
    calibration.write(folder, calibration.Calibration(levels, offsets.astype(np.float32)))


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(self, kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, list(outputs), **attributes))
        return outputs[0]

    def output(self, name: str, rank: int, kind: int = TensorProto.FLOAT) -> None:
        shape = ["batch", *[None] * (rank - 1)]
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))


def _graph(spec: Spec, stages: tuple[AttentionStage, ...]) -> onnx.ModelProto:
    build = _Builder()
    inputs = [("history", (spec.context, len(spec.channels)))]
    build.constant("scale", spec.scale)
    build.constant("latest", np.array([spec.context - 1]))
    build.constant("repeats", np.array([1, spec.horizon, 1]))
    known = "history"
    if spec.observed_steps is not None:
        build.add("IsNaN", ["history"], "missing")
        zero = build.constant("zero", np.float32(0))
        known = build.add("Where", ["missing", zero, "history"], "known")
    build.add("Gather", [known, "latest"], "last", axis=1)
    build.add("Mul", ["last", "scale"], "scaled")
    repeated = build.add("Tile", ["scaled", "repeats"], "repeated")
    if spec.calendar is not None:
        features = len(spec.calendar.features)
        inputs += [
            ("history_calendar", (spec.context, features)),
            ("future_calendar", (spec.horizon, features)),
        ]
        build.constant("features", np.array([2]))
        build.add("ReduceSum", ["future_calendar", "features"], "season", keepdims=1)
        # The history's calendar enters with weight 0, so that the graph needs it.
        build.add("ReduceMean", ["history_calendar"], "past", keepdims=0)
        build.add("Mul", ["past", build.constant("nothing", np.float32(0))], "none")
        build.add("Add", ["season", "none"], "added")
        repeated = build.add("Add", ["repeated", "added"], "seasonal")
    if spec.covariates is not None:
        shapes = spec.covariates.shapes(spec.context, spec.horizon)
        inputs += shapes.items()
        for name in shapes:
            repeated = _add_covariates(build, spec, repeated, name)
    repeated = _burn(build, repeated, spec.burn)
    repeated = _weigh(build, repeated, spec)
    if spec.fails:
        # The table has one row, so that a last value of 1 or more fails.
        build.add("Cast", ["last"], "row", to=TensorProto.INT64)
        build.add("Gather", [build.constant("table", np.zeros(1, np.float32)), "row"], "found")
        repeated = build.add("Add", [repeated, "found"], "guarded")
    if spec.targets:
        build.constant("targets", np.array(spec.columns))
        repeated = build.add("Gather", [repeated, "targets"], "chosen", axis=2)
    build.add("Identity", [repeated], "forecast")
    build.output("forecast", 3)
    if spec.margin_bound is not None:
        build.constant("first", np.array([0]))
        build.add("Gather", ["history", "first"], "oldest", axis=1)
        build.constant("row", np.array([-1]))
        build.add("Reshape", ["oldest", "row"], "margin")
        build.output("margin", 1)
    for own in stages:
        _explain(build, spec, own)
    graph = helper.make_graph(
        build.nodes,
        spec.name,
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
            for name, shape in inputs
        ],
        build.outputs,
        build.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def _add_covariates(build: _Builder, spec: Spec, repeated: str, name: str) -> str:
    weighted = build.add(
        "Mul", [name, build.constant(f"{name}/weights", spec.weights(name))], f"{name}/weighted"
    )
    if name == FUTURE_COVARIATES:
        axes = build.constant(f"{name}/axes", np.array([2]))
        total = build.add("ReduceSum", [weighted, axes], f"{name}/sum", keepdims=1)
    else:
        flat = build.constant(f"{name}/flat", np.array([0, -1, 1]))
        build.add("Reshape", [weighted, flat], f"{name}/flattened")
        axes = build.constant(f"{name}/axes", np.array([1]))
        total = build.add("ReduceSum", [f"{name}/flattened", axes], f"{name}/sum", keepdims=1)
    return build.add("Add", [repeated, total], f"{name}/added")


def _burn(build: _Builder, value: str, products: int) -> str:
    if not products:
        return value
    build.constant("matrix", np.full((512, 512), 1 / 512, np.float32))
    build.add("ReduceMean", ["history"], "seed", keepdims=0)
    current = build.add("Add", ["matrix", "seed"], "burnt-0")
    for number in range(1, products + 1):
        current = build.add("MatMul", [current, "matrix"], f"burnt-{number}")
    build.add("ReduceMean", [current], "ash", keepdims=0)
    build.add("Mul", ["ash", build.constant("no-ash", np.float32(0))], "gone")
    return build.add("Add", [value, "gone"], "slow")


def _ballast(spec: Spec) -> Floats:
    return np.ones((1024, 256 * spec.ballast), np.float32)


def _weigh(build: _Builder, value: str, spec: Spec) -> str:
    if not spec.ballast:
        return value
    build.constant("ballast", _ballast(spec))
    # It depends on the history; otherwise it would be folded into a constant.
    build.add("ReduceMean", ["history"], "level", keepdims=0)
    build.add("Mul", [build.constant("nothings", np.zeros((1, 1024), np.float32)), "level"], "row")
    build.add("MatMul", ["row", "ballast"], "load")
    return build.add("Add", [value, build.add("ReduceSum", ["load"], "sum", keepdims=0)], "heavy")


def _explain(build: _Builder, spec: Spec, stage: AttentionStage) -> None:
    own = f"{stage.name}/"
    match stage.form:
        case "dense" if stage.query.in_time:
            _softmax(build, spec, stage, own)
        case "dense":
            _mix(build, stage, own)
        case "circulant":
            _correlate(build, spec, stage, own)
        case "sparse":
            _route(build, stage, own)


def _mix(build: _Builder, stage: AttentionStage, own: str) -> None:
    """Scores are products of the channels' means, doubled for the second head."""
    build.constant(own + "time", np.array([1]))
    build.constant(own + "query", np.array([1, 3]))
    build.constant(own + "key", np.array([1, 2]))
    build.add("ReduceMean", ["history", own + "time"], own + "means", keepdims=0)
    build.add("Unsqueeze", [own + "means", own + "query"], own + "q")
    build.add("Unsqueeze", [own + "means", own + "key"], own + "k")
    build.add("Mul", [own + "q", own + "k"], own + "products")
    heads = np.array([1, 2], np.float32)[:, None, None]
    build.add("Mul", [own + "products", build.constant(own + "heads", heads)], own + "scores")
    build.add("Softmax", [own + "scores"], f"{stage.name}.weights", axis=-1)
    build.output(f"{stage.name}.weights", 4)


def _route(build: _Builder, stage: AttentionStage, own: str) -> None:
    """Scores are the channels' mean times the number of the cluster; the last has none."""
    build.constant(own + "channels", np.array([2]))
    build.constant(own + "axes", np.array([1, 3]))
    build.constant(own + "k", np.array([2]))
    factors = np.array([[[0, 1, 2, 3]], [[3, 2, 1, 0]]], np.float32)
    barred = np.where(np.arange(4) == 3, -np.inf, 0).astype(np.float32)
    kept = np.array([[[1, 1]], [[1, 0]]])
    build.constant(own + "kept", kept)
    build.constant(own + "left", kept - 1)
    build.constant(own + "held", kept.astype(np.float32))
    build.add("ReduceMean", ["history", own + "channels"], own + "mean", keepdims=0)
    build.add("Unsqueeze", [own + "mean", own + "axes"], own + "rows")
    build.add("Mul", [own + "rows", build.constant(own + "factors", factors)], own + "products")
    scores = f"{stage.name}.scores"
    build.add("Add", [own + "products", build.constant(own + "barred", barred)], scores)
    build.add("TopK", [scores, own + "k"], own + "best", own + "indices")
    build.add("Softmax", [own + "best"], own + "shares", axis=-1)
    build.add("Mul", [own + "shares", own + "held"], f"{stage.name}.weights")
    build.add("Mul", [own + "indices", own + "kept"], own + "some")
    build.add("Add", [own + "some", own + "left"], f"{stage.name}.keys")
    build.output(f"{stage.name}.keys", 4, TensorProto.INT64)
    build.output(f"{stage.name}.weights", 4)
    build.output(scores, 4)


def _softmax(build: _Builder, spec: Spec, stage: AttentionStage, own: str) -> None:
    """Scores are products of the patches' means, doubled for the second head."""
    means = np.zeros((stage.query.length, spec.context), np.float32)
    for patch in range(stage.query.length):
        means[patch, patch * stage.query.stride :][: stage.query.width] = 1 / stage.query.width
    build.constant(own + "means", means)
    source = "history"
    if not stage.per_channel:
        build.constant(own + "channels", np.array([2]))
        source = build.add("ReduceMean", ["history", own + "channels"], own + "mean", keepdims=1)
    build.add("MatMul", [own + "means", source], own + "patches")
    build.add("Transpose", [own + "patches"], own + "rows", perm=[0, 2, 1])
    build.constant(own + "query", np.array([3]))
    build.constant(own + "key", np.array([2]))
    build.add("Unsqueeze", [own + "rows", own + "query"], own + "q")
    build.add("Unsqueeze", [own + "rows", own + "key"], own + "k")
    scores = build.add("Mul", [own + "q", own + "k"], own + "scores")
    head_axis = 2 if stage.per_channel else 1
    heads = np.array([1, 2], np.float32)[:, None, None]
    if stage.per_channel:
        build.constant(own + "head", np.array([head_axis]))
        scores = build.add("Unsqueeze", [scores, own + "head"], own + "spread")
    build.add("Mul", [scores, build.constant(own + "heads", heads)], own + "sharp")
    build.add("Softmax", [own + "sharp"], f"{stage.name}.weights", axis=-1)
    build.output(f"{stage.name}.weights", 5 if stage.per_channel else 4)


def _correlate(build: _Builder, spec: Spec, stage: AttentionStage, own: str) -> None:
    """Correlation of the channels' mean with itself, its two best lags and their softmax."""
    steps = np.arange(spec.context)
    build.constant(own + "rolled", (steps[:, None] + steps) % spec.context)
    build.constant(own + "channels", np.array([2]))
    build.constant(own + "lag", np.array([1]))
    build.constant(own + "k", np.array([2]))
    build.constant(own + "time", np.array([2]))
    build.add("ReduceMean", ["history", own + "channels"], own + "mean", keepdims=0)
    build.add("Gather", [own + "mean", own + "rolled"], own + "later", axis=1)
    build.add("Unsqueeze", [own + "mean", own + "lag"], own + "now")
    build.add("Mul", [own + "later", own + "now"], own + "products")
    build.add(
        "ReduceMean", [own + "products", own + "time"], f"{stage.name}.correlation", keepdims=0
    )
    build.add(
        "TopK",
        [f"{stage.name}.correlation", own + "k"],
        own + "best",
        f"{stage.name}.lags",
    )
    build.add("Softmax", [own + "best"], f"{stage.name}.lag_weights", axis=-1)
    build.output(f"{stage.name}.correlation", 2)
    build.output(f"{stage.name}.lags", 2, TensorProto.INT64)
    build.output(f"{stage.name}.lag_weights", 2)
