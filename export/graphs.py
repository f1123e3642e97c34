"""Trace a serving form to ONNX, and check the interface of the graph."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch
from onnx.utils import Extractor
from torch.export import Dim

from foretell.bundle import layout
from foretell.bundle.bounds import Limits
from foretell.bundle.scaler import Scaler
from foretell.export.errors import ExportError
from foretell.export.lowerings import LOWERINGS
from foretell.export.serving_form import GraphKind, ServingForm
from foretell.export.simplification import simplify
from foretell.models.forecaster import Forecaster

OPSET = 23
FILES: dict[GraphKind, str] = {
    "forecast": layout.FORECAST_GRAPH,
    "explain": layout.EXPLAIN_GRAPH,
}


def trace_all(
    model: Forecaster, scaler: Scaler, limits: Limits | None = None
) -> dict[str, onnx.ModelProto]:
    """Trace the graphs of a bundle, by file name.

    Args:
        model: Model in its inference form.
        scaler: Standardisation of the model.
        limits: Limits of forecasts.

    Raises:
        ExportError: as `trace`.
    """
    forms = {kind: ServingForm(model, scaler, kind, limits) for kind in FILES}
    explained = trace(forms["explain"])
    if forms["forecast"].explains:
        # Tracing takes most of an export's time, and the explain graph contains the other one.
        forecast = _part(explained, forms["forecast"])
    else:
        forecast = trace(forms["forecast"])
    return {FILES["forecast"]: forecast, FILES["explain"]: explained}


def trace(form: ServingForm) -> onnx.ModelProto:
    """Trace a serving form with a dynamic batch axis.

    Raises:
        ExportError: the graph has other inputs or outputs than the form, or torch cannot trace it.
    """
    # Tracing would take a batch of 1 for a constant.
    example = form.example_inputs(batch=2)
    batch = Dim("batch", min=1)
    # The form takes them as one variadic argument.
    axes = (tuple({0: batch} for _ in example),)
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    with _rare_collections(), warnings.catch_warnings():
        # Users cannot act on deprecations inside torch and onnxscript.
        warnings.simplefilter("ignore")
        exporter.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                form.eval(),
                example,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=axes,
                input_names=form.input_names,
                output_names=form.output_names,
                verbose=False,
                optimize=False,
                custom_translation_table=LOWERINGS,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            raise ExportError(f"torch cannot trace it: {reason[:200]}") from error
        finally:
            exporter.setLevel(level)
    if program is None:
        raise ExportError("torch.onnx.export returned no program")
    simplify(program.model)
    proto = program.model_proto
    _strip_traces(proto)
    _check_interface(proto, form)
    return proto


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often: a trace frees little, and collections take a seventh of it."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], 50_000), 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _part(proto: onnx.ModelProto, form: ServingForm) -> onnx.ModelProto:
    """The part of a graph that computes the outputs of a form."""
    part = Extractor(proto).extract_model([*form.input_names], [*form.output_names])
    part.graph.ClearField("value_info")
    return part


def _strip_traces(proto: onnx.ModelProto) -> None:
    """Drop the exporter's stack traces: they name paths of this machine and dwarf the graph."""
    proto.graph.ClearField("value_info")
    for node in proto.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    proto.graph.ClearField("metadata_props")


def _check_interface(proto: onnx.ModelProto, form: ServingForm) -> None:
    """Check names, types and shapes: tracing may specialise a dimension silently."""
    example = form.example_inputs(batch=2)
    wanted = {
        name: ("FLOAT", ["batch", *tensor.shape[1:]])
        for name, tensor in zip(form.input_names, example, strict=True)
    }
    found = {value.name: (_type(value), _dimensions(value)) for value in proto.graph.input}
    if found != wanted:
        raise ExportError(f"the graph's inputs are {found}, expected {wanted}")
    outputs = [value.name for value in proto.graph.output]
    if outputs != list(form.output_names):
        raise ExportError(f"the graph's outputs are {outputs}, expected {form.output_names}")
    integers = {
        output.name
        for stage in form.model.stages
        for output in stage.outputs
        if output.type == "int64"
    }
    for value in proto.graph.output:
        if _dimensions(value)[:1] != ["batch"]:
            raise ExportError(f"output {value.name}: its first axis is not the batch")
        kind = "INT64" if value.name in integers else "FLOAT"
        if _type(value) != kind:
            raise ExportError(f"output {value.name}: its type is {_type(value)}, expected {kind}")


def _type(value: onnx.ValueInfoProto) -> str:
    return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))


def _dimensions(value: onnx.ValueInfoProto) -> list[str | int]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
