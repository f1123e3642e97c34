"""The inputs of a request: each checked against the model, and read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import HISTORY, Arrays, input_shapes, output_shapes
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.parse import read_json
from foretell.service.forecast.warnings import Notice, ignored_fields
from foretell.service.http.compression import Body, unreadable
from foretell.service.inference import tensors
from foretell.service.inference.wire import (
    FORM,
    MOST_OUTPUTS,
    NAMES,
    InferRequest,
    InputTensor,
    RequestedOutput,
)
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, UnknownFields, shown, validate


class Inputs:
    """Reads the inputs of one request.

    Args:
        manifest: The model's.
        most: Most windows.
        data: What follows the JSON.
    """

    def __init__(self, manifest: Manifest, most: int, data: memoryview) -> None:
        self._shapes = input_shapes(manifest)
        self._most = most
        self._data = data
        self._taken = 0
        self._feeds: Arrays = {}

    def read(self, inputs: list[InputTensor]) -> Arrays:
        """Read all of them.

        Returns:
            `[windows, …]` by name; float32, perhaps views of the data.

        Raises:
            InvalidInputError: one is missing, or is not what the model takes.
            NotSupportedError: one is to come from memory that is shared.
        """
        for index, tensor in enumerate(inputs):
            place = f"inputs[{index}]"
            if tensor.name not in self._shapes:
                raise InvalidInputError(
                    f"expected one of {', '.join(self._shapes)}, got {shown(tensor.name)}",
                    param=f"{place}.name",
                )
            if tensor.name in self._feeds:
                raise InvalidInputError(f"{tensor.name} is given twice", param=f"{place}.name")
            self._feeds[tensor.name] = self._tensor(tensor, place)
        if missing := [name for name in self._shapes if name not in self._feeds]:
            raise InvalidInputError(f"{', '.join(missing)}: required, but missing", param="inputs")
        if left := len(self._data) - self._taken:
            raise InvalidInputError(f"{left} bytes follow the last of the tensors", param="inputs")
        return self._feeds

    def read_raw(self) -> Arrays:
        """Take the data for the only input there is.

        Returns:
            As `read`.

        Raises:
            InvalidInputError: the data is not a whole number of histories, or holds numbers that
                are not finite.
            NotSupportedError: the model takes several inputs.
        """
        if len(self._shapes) > 1:
            raise NotSupportedError(
                f"the model takes {', '.join(self._shapes)}: a body without JSON holds one input"
            )
        size = tensors.binary_size("FP32", self._shapes[HISTORY])
        windows, rest = divmod(len(self._data), size)
        if rest or not windows:
            raise InvalidInputError(
                f"expected a body of {size} bytes for each {list(self._shapes[HISTORY])} of FP32, "
                f"got {len(self._data)}"
            )
        self._check_count(windows, HISTORY)
        shape = (windows, *self._shapes[HISTORY])
        return {HISTORY: tensors.from_binary(self._data, "FP32", shape, HISTORY)}

    def _tensor(self, tensor: InputTensor, place: str) -> tensors.Floats:
        parameters = tensor.parameters
        if parameters.shared_memory_region is not None:
            raise NotSupportedError(
                "shared memory is not supported", param=f"{place}.parameters.shared_memory_region"
            )
        tensors.check_datatype(tensor.datatype, place)
        shape = self._shape(tensor, place)
        size = parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            raise InvalidInputError(
                "expected either data or parameters.binary_data_size", param=place
            )
        if tensor.data is not None:
            return tensors.from_json(tensor.data, tensor.datatype, shape, place)
        expected = tensors.binary_size(tensor.datatype, shape)
        if size != expected:
            raise InvalidInputError(
                f"expected {expected} bytes of {tensor.datatype} for {list(shape)}, got {size}",
                param=f"{place}.parameters.binary_data_size",
            )
        data = self._data[self._taken : self._taken + expected]
        if len(data) < expected:
            raise InvalidInputError(
                f"expected {expected} bytes of data, of which the body holds {len(data)}; "
                "Inference-Header-Content-Length says where the JSON ends and the data begins",
                param=place,
            )
        self._taken += expected
        return tensors.from_binary(data, tensor.datatype, shape, place)

    def _shape(self, tensor: InputTensor, place: str) -> tuple[int, ...]:
        own = self._shapes[tensor.name]
        windows, *rest = tensor.shape or [0]
        if tuple(rest) != own or windows < 1:
            raise InvalidInputError(
                f"expected [batch, {', '.join(map(str, own))}], got {_short(tensor.shape)}",
                param=f"{place}.shape",
            )
        first = next(iter(self._feeds.values()), None)
        if first is not None and len(first) != windows:
            raise InvalidInputError(
                f"expected a batch of {len(first)}, as in the inputs before, got {windows}",
                param=f"{place}.shape[0]",
            )
        self._check_count(windows, f"{place}.shape[0]")
        return (windows, *own)

    def _check_count(self, windows: int, place: str) -> None:
        if windows > self._most:
            raise InvalidInputError(
                f"expected a batch of at most {self._most} (max_inputs), got {shown(windows)}",
                param=place,
            )


def _short(shape: list[int]) -> str:
    return str(shape) if len(str(shape)) < 60 else shown(shape)


_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Output:
    """An output to answer.

    Attributes:
        name: The graph's.
        values: At most how many it has of a window.
        attention: Whether only the graph with attention has it.
        binary: Whether it follows the JSON.
    """

    name: str
    values: int
    attention: bool
    binary: bool


@dataclass(frozen=True)
class Job:
    """A request, checked.

    Attributes:
        model: Who answers.
        id: To be echoed.
        feeds: `[windows, …]` by input name.
        outputs: What to answer.
        timeout: Seconds the whole request may take, if it says so.
        notices: What the answer is to warn of, as far as the request tells.
    """

    model: Model
    id: str | None
    feeds: Arrays
    outputs: list[Output]
    timeout: float | None
    notices: list[Notice] = field(default_factory=list)

    @property
    def attention(self) -> list[str]:
        """Names of the attention outputs among them."""
        return [output.name for output in self.outputs if output.attention]

    @property
    def windows(self) -> int:
        """How many histories there are."""
        return len(self.feeds[HISTORY])


def json_bytes(size: int, length: str | None) -> int:
    """How much of a body is JSON.

    Args:
        size: Bytes of the body.
        length: As for `decode`, which refuses what is no length.
    """
    return min(size, int(length)) if length is not None and _is_length(length) else size


def decode(body: Body, length: str | None, model: Model, settings: Settings) -> Job:
    """Read a request; the job's arrays may be views of its body.

    Args:
        body: The JSON and what follows it.
        length: Bytes of the JSON, as the header says; None if that is all. 0 where the body is the
            model's only input.
        model: Who answers.
        settings: Limits.

    Raises:
        UnreadableError: the JSON is none, or not as long as the header says.
        InvalidInputError: the request does not fit the interface or the model.
        NotSupportedError: the door or the model cannot do it.
    """
    view = memoryview(body)
    end = len(view) if length is None else _read_length(length, view)
    inputs = Inputs(model.manifest, settings.max_inputs, view[end:])
    if end == 0 and length is not None:
        job = Job(model, None, inputs.read_raw(), _defaults(model.manifest, binary=True), None)
    else:
        parsed = read_json(view[:end], FORM, MOST_OUTPUTS)
        notices = ignored_fields(_unread(parsed))
        request = validate(InferRequest, parsed)
        outputs = _requested(request, model.manifest)
        timeout = request.parameters.timeout / 1e6 or None
        feeds = inputs.read(request.inputs)
        job = Job(model, request.id, feeds, outputs, timeout, notices)
    _check_size(job, settings)
    return job


def _is_length(given: str) -> bool:
    return given.isascii() and given.isdecimal() and len(given) < 20


def _read_length(given: str, body: memoryview) -> int:
    size = len(body)
    if not (_is_length(given) and int(given) <= size):
        raise unreadable(
            f"expected the bytes of the JSON, at most the {size} of the body, got {given[:40]!r}",
            body,
            _LENGTH,
        )
    return int(given)


def url_notices(names: Iterable[str]) -> list[Notice]:
    """What the answer is to warn of, by the names of the URL's parameters; none of them is read.

    Raises:
        InvalidInputError: one is near a name that the request itself may have.
    """
    ignored: UnknownFields = {}
    NAMES.sift(QUERY, names, QUERY, ignored)
    return ignored_fields(ignored)


def _unread(request: object) -> UnknownFields:
    """The names in a request that nobody reads; refuses those that are near others."""
    ignored: UnknownFields = {}
    for level, found, place in _objects(request):
        if isinstance(found, dict) and not found.keys() <= NAMES.levels[level].keys():
            NAMES.sift(level, found, place, ignored)
    return ignored


def _objects(request: object) -> Iterator[tuple[str, object, str]]:
    """What should be objects: the level and the place of each."""
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


def _defaults(manifest: Manifest, *, binary: bool) -> list[Output]:
    return [
        Output(name, values, attention=False, binary=binary)
        for name, values in _forecast_values(manifest).items()
    ]


def _forecast_values(manifest: Manifest) -> dict[str, int]:
    return {name: math.prod(shape) for name, shape in output_shapes(manifest).items()}


def _requested(request: InferRequest, manifest: Manifest) -> list[Output]:
    """What to answer."""
    binary = request.parameters.binary_data_output
    if not request.outputs:
        return _defaults(manifest, binary=binary)
    attention = {
        name: values for stage in manifest.attention for name, values in stage.sizes.items()
    }
    known = _forecast_values(manifest) | attention
    outputs: dict[str, Output] = {}
    for index, wanted in enumerate(request.outputs):
        place = f"outputs[{index}]"
        if wanted.name not in known:
            raise InvalidInputError(
                f"expected one of {', '.join(known)}, got {shown(wanted.name)}",
                param=f"{place}.name",
            )
        if wanted.name in outputs:
            raise InvalidInputError(f"{wanted.name} is asked for twice", param=f"{place}.name")
        _check_supported(wanted, place)
        own = wanted.parameters.binary_data
        outputs[wanted.name] = Output(
            wanted.name,
            known[wanted.name],
            attention=wanted.name in attention,
            binary=binary if own is None else own,
        )
    return list(outputs.values())


def _check_supported(wanted: RequestedOutput, place: str) -> None:
    if wanted.parameters.classification is not None:
        raise NotSupportedError(
            "classification is not supported", param=f"{place}.parameters.classification"
        )
    if wanted.parameters.shared_memory_region is not None:
        raise NotSupportedError(
            "shared memory is not supported", param=f"{place}.parameters.shared_memory_region"
        )


def _check_size(job: Job, settings: Settings) -> None:
    """Refuse what would make too large an answer; in binary, attention is as cheap as the rest."""
    written_out = [output for output in job.outputs if output.attention and not output.binary]
    for outputs, limit, name in (
        (job.outputs, settings.max_answer_values, "max_answer_values"),
        (written_out, settings.max_attention_values, "max_attention_values"),
    ):
        values = job.windows * sum(output.values for output in outputs)
        if values > limit:
            raise InvalidInputError(
                f"the answer would hold {values} values and may hold {limit} ({name}); send a "
                "smaller batch, or ask for fewer outputs or for binary ones",
                param="outputs",
            )
