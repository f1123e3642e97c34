"""The inputs of a request: each checked against the model, and read."""

from __future__ import annotations

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.doors.inference import tensors
from foretell.service.doors.inference.metadata import input_shapes
from foretell.service.doors.inference.wire import InputTensor
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.tensors import HISTORY
from foretell.service.validation import shown


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
