"""From a job's outputs to the bytes of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.service.arrays import Arrays
from foretell.service.doors.compression import choose_encoding, compress
from foretell.service.doors.inference.decode import Job
from foretell.service.doors.inference.tensors import datatype_of
from foretell.service.errors import InvalidInputError

# HTTP's "deflate" is zlib's format, not the bare stream. Not zstd: there are clients that offer it
# on their own and then cannot read it.
_ENCODINGS = ("gzip", "deflate")
_NOT_WORTH = 1024


@dataclass(frozen=True)
class Answer:
    """What is sent.

    Attributes:
        body: The JSON, and what follows it.
        headers: What the caller must know to read it.
    """

    body: bytes
    headers: dict[str, str]


def answer_bytes(job: Job, outputs: Arrays) -> int:
    """At least how many bytes the answer will hold before it is compressed."""
    return sum(outputs[output.name].nbytes for output in job.outputs)


def encode(job: Job, outputs: Arrays, accepted: str) -> Answer:
    """Write the answer.

    Args:
        job: The request.
        outputs: `[windows, …]` by output name.
        accepted: How the caller lets it be compressed: the header Accept-Encoding.

    Raises:
        InvalidInputError: an output is not finite.
    """
    parts: list[bytes | memoryview] = []
    described: list[dict[str, Any]] = []
    for output in job.outputs:
        values = np.ascontiguousarray(outputs[output.name])
        _check_finite(values, output.name)
        entry = {"name": output.name, "datatype": datatype_of(values), "shape": values.shape}
        if output.binary:
            parts.append(values.data.cast("B"))
            described.append(entry | {"parameters": {"binary_data_size": values.nbytes}})
        else:
            described.append(entry | {"data": values.reshape(-1)})
    head: dict[str, Any] = {} if job.id is None else {"id": job.id}
    head |= {
        "model_name": job.model.name,
        "model_version": job.model.version,
        "outputs": described,
    }
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = {"content-type": "application/json"}
    if parts:
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(text)),
        }
    size = len(text) + sum(len(part) for part in parts)
    encoding = choose_encoding(accepted, _ENCODINGS) if size >= _NOT_WORTH else None
    if encoding is None:
        return Answer(b"".join((text, *parts)), headers)
    return Answer(compress(encoding, (text, *parts)), headers | {"content-encoding": encoding})


def _check_finite(values: NDArray[Any], name: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        window = int(np.unravel_index(int(finite.argmin()), values.shape)[0])
        raise InvalidInputError(
            f"{name} of window {window} is not finite: its values are too far from those the model "
            "was trained on",
            param="inputs",
        )
