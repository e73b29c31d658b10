"""Writes a safetensors file tensor by tensor."""

import json
from dataclasses import dataclass

import numpy
import safetensors


@dataclass
class SafeTensor:
    """A tensor whose values are made when they are written."""

    name: str
    dtype: str  # of the format: "F32"
    shape: list
    values: object  # a function without arguments that returns an array

    @property
    def bytes(self):
        size = {"I64": 8, "F32": 4, "I32": 4, "I8": 1}[self.dtype]
        return size * int(numpy.prod(self.shape, dtype=numpy.int64))


def write_safetensors(file, tensors):
    """The package's own writer takes all tensors in memory at once; this one takes them one by one."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                               "data_offsets": [offset, offset + tensor.bytes]}
        offset += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.append(len(text).to_bytes(8, "little") + text)
    for tensor in tensors:
        file.append(numpy.ascontiguousarray(tensor.values()).reshape(-1))
    with safetensors.safe_open(file.named(), "numpy") as read:  # checks header and size
        assert len(read.keys()) == len(tensors)
