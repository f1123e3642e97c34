"""The wire types of the Open Inference Protocol, and the metadata of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)

from foretell.bundle.attention import ElementType
from foretell.service.arrays import input_shapes, output_shapes
from foretell.service.engine.registry import Model
from foretell.service.forecast.form import Form
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, Digest, KnownFields, at_most, check_list, optional

# Most outputs of a request.
MOST_OUTPUTS = 1024
Whole = Annotated[StrictInt, Field(ge=0, le=2**53)]
NullIsEmpty = BeforeValidator(lambda value: {} if value is None else value)
NullIsNone = BeforeValidator(lambda value: [] if value is None else value)
# `tensors` checks numbers in bulk.
Data = Annotated[
    list[Any], PlainValidator(check_list), WithJsonSchema({"type": "array", "items": {}})
]


class SharedMemory(BaseModel):
    """Parameters of an extension that is not supported."""

    shared_memory_region: str | None = optional("Not supported.")
    shared_memory_byte_size: Any = optional("Not supported.")
    shared_memory_offset: Any = optional("Not supported.")


class InputParameters(SharedMemory):
    """Parameters of an input tensor."""

    binary_data_size: Whole | None = optional(
        "Bytes of the tensor after the JSON, instead of `data`."
    )


class InputTensor(BaseModel):
    """One input."""

    name: str
    shape: Annotated[list[Whole], Field(fail_fast=True, max_length=1024), at_most(1024)]
    datatype: str = Field(description="INT8 … INT64, UINT8 … UINT64, BF16, FP16, FP32 or FP64.")
    parameters: Annotated[InputParameters, NullIsEmpty] = InputParameters()
    data: Data | None = optional("Numbers, row-major in one list, or nested in the shape.")


class OutputParameters(SharedMemory):
    """Parameters of an output."""

    binary_data: StrictBool | None = optional(
        "Whether to send it after the JSON; `binary_data_output` of the request if absent."
    )
    classification: Any = optional("Not supported.")


class RequestedOutput(BaseModel):
    """A requested output."""

    name: str
    parameters: Annotated[OutputParameters, NullIsEmpty] = OutputParameters()


class RequestParameters(BaseModel):
    """Parameters of a request."""

    binary_data_output: StrictBool = Field(
        default=False, description="Whether to send outputs after the JSON."
    )
    timeout: Whole = Field(
        default=0,
        description="Microseconds for the whole request; can only shorten the server's limit. 0 "
        "sets no limit.",
    )
    sequence_id: Any = optional("Accepted and ignored.")
    sequence_start: Any = optional("Accepted and ignored.")
    sequence_end: Any = optional("Accepted and ignored.")
    priority: Any = optional("Accepted and ignored.")


class InferRequest(BaseModel):
    """A request for one run of the model."""

    id: str | None = optional("Echoed.")
    model_name: Any = optional("Accepted and ignored: the URL names the model.")
    parameters: Annotated[RequestParameters, NullIsEmpty] = RequestParameters()
    inputs: Annotated[list[InputTensor], Field(fail_fast=True, max_length=64), at_most(64)]
    outputs: Annotated[
        list[RequestedOutput],
        Field(fail_fast=True, max_length=MOST_OUTPUTS),
        at_most(MOST_OUTPUTS),
        NullIsNone,
    ] = Field(default=[], description="Names from the model's metadata; the forecast if absent.")


NAMES = KnownFields(
    {
        "": InferRequest.model_fields,
        "parameters": RequestParameters.model_fields,
        "inputs[]": InputTensor.model_fields,
        "inputs[].parameters": InputParameters.model_fields,
        "outputs[]": RequestedOutput.model_fields,
        "outputs[].parameters": OutputParameters.model_fields,
        QUERY: {},
    }
)
FORM = Form(NAMES.levels, nested={"inputs[].data"})


class OutputTensor(BaseModel):
    """One output."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[float] | None = None


class InferResponse(BaseModel):
    """The outputs; binary ones follow the JSON, in order. For the OpenAPI document only."""

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, str] = Field(
        description="`model_digest`, as `digest` of the model's metadata; `warnings`, if there are "
        "any: a JSON list in a string."
    )
    outputs: list[OutputTensor]


class TensorMetadata(BaseModel):
    """An input or output of a model; -1 is an axis of any length."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """Inputs and outputs of a model."""

    name: str
    versions: list[str]
    digest: Digest
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(BaseModel):
    """Name, version and extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class ServerHealth(BaseModel):
    """Whether the server runs, and whether it can answer."""

    live: bool
    ready: bool


class ModelHealth(BaseModel):
    """Whether a model can answer."""

    name: str
    ready: bool


class IndexRequest(BaseModel):
    """Filter of the listed versions."""

    ready: StrictBool = Field(default=False, description="Only versions that answer.")


class IndexEntry(BaseModel):
    """A version of a model, loaded or not."""

    name: str
    version: str
    state: str
    reason: str


class ChangeParameters(BaseModel):
    """Parameters of a load or unload; others, such as `unload_dependents`, are ignored."""

    model_config = ConfigDict(extra="allow")

    version: Annotated[
        str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)
    ] = optional("A version; if absent, the server's choice.")
    config: Any = optional("Not supported.")


class ChangeRequest(BaseModel):
    """A request to load or unload a model."""

    parameters: Annotated[ChangeParameters, NullIsEmpty] = ChangeParameters()


class InferenceError(BaseModel):
    """An error. For the OpenAPI document only."""

    error: str


PLATFORM = "onnxruntime_onnx"
# An axis of any length.
_FREE = -1
_DATATYPES: dict[ElementType, str] = {"float32": "FP32", "int64": "INT64"}


def describe(model: Model, versions: list[str]) -> ModelMetadata:
    """The metadata of a model, with the loaded versions of its name."""
    manifest = model.manifest
    # Only runs with attention have these outputs.
    attention = [
        _tensor(each.name, [size or _FREE for size in each.shape], _DATATYPES[each.type])
        for stage in manifest.attention
        for each in stage.outputs
    ]
    return ModelMetadata(
        name=model.name,
        versions=versions,
        digest=model.digest,
        platform=PLATFORM,
        inputs=[_tensor(*each) for each in input_shapes(manifest).items()],
        outputs=[*(_tensor(*each) for each in output_shapes(manifest).items()), *attention],
    )


def _tensor(name: str, shape: Sequence[int], datatype: str = "FP32") -> TensorMetadata:
    return TensorMetadata(name=name, datatype=datatype, shape=[_FREE, *shape])


def configuration(model: Model, settings: Settings) -> dict[str, Any]:
    """The fields of Triton's ModelConfig that apply to a model."""

    def entry(tensor: TensorMetadata) -> dict[str, Any]:
        # The dims omit the batch axis if `max_batch_size` is set.
        shape, datatype = tensor.shape[1:], f"TYPE_{tensor.datatype}"
        return {"name": tensor.name, "data_type": datatype, "dims": shape}

    described = describe(model, [model.version])
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": "onnxruntime",
        "version_policy": {"specific": {"versions": [int(model.version)]}},
        # The limit of a request; larger ones than a batch are split.
        "max_batch_size": settings.max_inputs,
        "input": [*map(entry, described.inputs)],
        "output": [*map(entry, described.outputs)],
        "dynamic_batching": {
            "preferred_batch_size": [model.max_batch],
            "max_queue_delay_microseconds": 0,
        },
        "parameters": {
            "provider": {"string_value": model.provider},
            "digest": {"string_value": model.digest},
        },
    }
