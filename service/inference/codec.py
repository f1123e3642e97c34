"""The codec of the Open Inference Protocol: tensors in, tensors out, in one run of a model.

The body of a request is JSON, or JSON and then binary tensors. If tensors follow, the header
`Inference-Header-Content-Length` is the size of the JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.requests import Request

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import FORECAST, HISTORY, Arrays, output_shapes
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.parse import parsing_bytes, read_json, reading_work
from foretell.service.forecast.warnings import AnswerWarning, outside, unknown_fields
from foretell.service.http.body import JSON
from foretell.service.http.compression import Body, unreadable
from foretell.service.http.pipeline import NotRemembered, Parsed, Wait
from foretell.service.inference.tensors import Inputs, datatype_of
from foretell.service.inference.wire import (
    FORM,
    MOST_OUTPUTS,
    NAMES,
    InferRequest,
    RequestedOutput,
)
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, UnknownFields, shown, validate

HEADER = "inference-header-content-length"
# Bytes of a tensor that take as long as a byte of JSON.
_TENSOR_BYTES = 16


@dataclass(frozen=True)
class Output:
    name: str
    # Most values for one window.
    values: int
    # Whether it is only in the graph with attention.
    attention: bool
    # Whether it is sent after the JSON.
    binary: bool


@dataclass(frozen=True)
class Inference(NotRemembered):
    coverage: ClassVar[Mapping[float, tuple[int, int]]] = MappingProxyType({})

    model: Model
    id: str | None
    # `[windows, …]` by input name, perhaps views of the body, which has `held` bytes.
    feeds: Arrays
    outputs: list[Output]
    timeout: float | None = None
    held: int = 0
    warnings: list[AnswerWarning] = field(default_factory=list)

    @property
    def windows(self) -> int:
        return len(self.feeds[HISTORY])

    @property
    def attention(self) -> list[str]:
        """Names of the attention outputs among them."""
        return [output.name for output in self.outputs if output.attention]

    async def run(self, deadline: float, wait: Wait) -> Arrays:
        attention = self.attention
        return await wait(self.model.submit(self.feeds, attention=attention, deadline=deadline))


class _Content(NamedTuple):
    """A parsed request; without JSON, its body is the model's only input."""

    request: InferRequest | None
    body: Body
    tensors: memoryview
    warnings: list[AnswerWarning]


class InferenceCodec:
    # Clients send no content type, or an arbitrary one.
    media_type = None
    # HTTP's "deflate" is zlib's format. zstd is missing: some clients offer it by default and then
    # cannot read it.
    encodings = ("gzip", "deflate")
    compress_from = 1024

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def parsing_work(self, body: Body, request: Request) -> int:
        """Work of its JSON; tensors are read in place."""
        return reading_work(body, _text_bytes(body, request))

    def parsing_memory(self, body: Body, request: Request) -> int:
        return parsing_bytes(memoryview(body)[: _text_bytes(body, request)])

    def parse(self, body: Body, request: Request) -> Parsed[_Content]:
        length, text = request.headers.get(HEADER), _text_bytes(body, request)
        if length is not None and not (_is_length(length) and int(length) <= len(body)):
            raise unreadable(
                f"expected the bytes of the JSON, at most the {len(body)} of the body, got "
                f"{length[:40]!r}",
                body,
                "Inference-Header-Content-Length",
            )
        parsed, unknown = None, UnknownFields()
        if text or length is None:
            value = read_json(memoryview(body)[:text], FORM, MOST_OUTPUTS)
            for level, found, place in _objects(value):
                if isinstance(found, dict) and not found.keys() <= NAMES.levels[level].keys():
                    NAMES.check(level, found, place, unknown)
            parsed = validate(InferRequest, value)
        if request.scope["query_string"]:
            NAMES.check(QUERY, request.query_params, QUERY, unknown)
        content = _Content(parsed, body, memoryview(body)[text:], unknown_fields(unknown.values()))
        work = reading_work(body, text) + (len(body) - text) // _TENSOR_BYTES
        return Parsed(content, None, work)

    def decode(self, parsed: Parsed[_Content], model: Model) -> Inference:
        """Read the tensors, which may be views of the body."""
        request, body, tensors, warnings = parsed.release()
        inputs = Inputs(model.manifest, self._settings.max_inputs, tensors)
        name, timeout = None, None
        if request is None:
            feeds, outputs = inputs.read_raw(), _outputs([], model.manifest, binary=True)
        else:
            name, timeout = request.id, request.parameters.timeout / 1e6 or None
            binary = request.parameters.binary_data_output
            outputs = _outputs(request.outputs, model.manifest, binary=binary)
            feeds = inputs.read(request.inputs)
        decoded = Inference(model, name, feeds, outputs, timeout, len(body), warnings)
        _check_size(decoded, self._settings)
        return decoded

    def encoding_work(self, decoded: Inference, outputs: Arrays) -> int:
        """Work of numbers in JSON and of copying tensors."""
        work = len(decoded.id or "")
        for output in decoded.outputs:
            size = outputs[output.name].nbytes
            work += size // _TENSOR_BYTES if output.binary else size
        return work

    def encode(self, decoded: Inference, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        parts: list[memoryview] = []
        described: list[dict[str, Any]] = []
        for output in decoded.outputs:
            values = np.ascontiguousarray(outputs[output.name])
            _check_finite(values, output.name)
            entry = {"name": output.name, "datatype": datatype_of(values), "shape": values.shape}
            if output.binary:
                parts.append(values.data.cast("B"))
                described.append(entry | {"parameters": {"binary_data_size": values.nbytes}})
            else:
                described.append(entry | {"data": values.reshape(-1)})
        model, history = decoded.model, decoded.feeds[HISTORY]
        head: dict[str, Any] = {} if decoded.id is None else {"id": decoded.id}
        head |= {"model_name": model.name, "model_version": model.version}
        far = outside(model.manifest, history, outputs[FORECAST], lambda row: f"{HISTORY}[{row}]")
        # Parameters are strings, numbers or booleans.
        head["parameters"] = {"model_digest": model.digest}
        if warnings := decoded.warnings + (far or []):
            head["parameters"]["warnings"] = orjson.dumps(warnings).decode()
        head["outputs"] = described
        text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
        if not parts:
            return text, {"content-type": JSON}
        headers = {"content-type": "application/octet-stream", HEADER: str(len(text))}
        return b"".join((text, *parts)), headers


def _text_bytes(body: Body, request: Request) -> int:
    """Bytes of JSON in a body; all of it if the header is invalid, which is refused later."""
    length = request.headers.get(HEADER)
    if length is None or not _is_length(length):
        return len(body)
    return min(len(body), int(length))


def _is_length(given: str) -> bool:
    return given.isascii() and given.isdecimal() and len(given) < 20


def _objects(request: object) -> Iterator[tuple[str, object, str]]:
    """The parts of a request that should be objects, each between its level and its place."""
    if not isinstance(request, dict):
        return
    yield "", request, ""
    yield "parameters", request.get("parameters"), "parameters"
    for name in ("inputs", "outputs"):
        listed = request.get(name)
        # Longer lists are refused.
        for index, tensor in enumerate(listed[:MOST_OUTPUTS] if isinstance(listed, list) else ()):
            place = f"{name}[{index}]"
            yield f"{name}[]", tensor, place
            if isinstance(tensor, dict):
                yield f"{name}[].parameters", tensor.get("parameters"), f"{place}.parameters"


def _outputs(
    requested: Sequence[RequestedOutput], manifest: Manifest, *, binary: bool
) -> list[Output]:
    """The outputs to return, the forecast's if none is requested; `binary` is the default."""
    known = {
        name: Output(name, math.prod(shape), attention=False, binary=binary)
        for name, shape in output_shapes(manifest).items()
    }
    if not requested:
        return list(known.values())
    for stage in manifest.attention:
        for name, values in stage.sizes.items():
            known[name] = Output(name, values, attention=True, binary=binary)
    outputs: dict[str, Output] = {}
    for index, wanted in enumerate(requested):
        place = f"outputs[{index}]"
        if wanted.name not in known:
            raise InvalidInputError(
                f"expected one of {', '.join(known)}, got {shown(wanted.name)}",
                param=f"{place}.name",
            )
        if wanted.name in outputs:
            raise InvalidInputError(f"{wanted.name} is given twice", param=f"{place}.name")
        for extension in ("classification", "shared_memory_region"):
            if getattr(wanted.parameters, extension) is not None:
                raise NotSupportedError(
                    f"{extension.removesuffix('_region').replace('_', ' ')} is not supported",
                    param=f"{place}.parameters.{extension}",
                )
        outputs[wanted.name] = known[wanted.name]
        if (is_binary := wanted.parameters.binary_data) is not None:
            outputs[wanted.name] = replace(known[wanted.name], binary=is_binary)
    return list(outputs.values())


def _check_size(decoded: Inference, settings: Settings) -> None:
    """Refuse a request with too large an answer; binary attention is as cheap as other outputs."""
    written_out = [output for output in decoded.outputs if output.attention and not output.binary]
    for outputs, limit, name in (
        (decoded.outputs, settings.max_answer_values, "max_answer_values"),
        (written_out, settings.max_attention_values, "max_attention_values"),
    ):
        values = decoded.windows * sum(output.values for output in outputs)
        if values > limit:
            raise InvalidInputError(
                f"the answer would hold {values} values and may hold {limit} ({name}); send a "
                "smaller batch, or ask for fewer outputs or for binary ones",
                param="outputs",
            )


def _check_finite(values: NDArray[Any], name: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        window = int(np.unravel_index(int(finite.argmin()), values.shape)[0])
        raise InvalidInputError(
            f"{name} of window {window} is not finite: its values are too far from those the model "
            "was trained on",
            param="inputs",
        )
