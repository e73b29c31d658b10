"""Builds an ONNX graph node by node: each call returns the name of a value."""

import re

import numpy
import onnx
from onnx import TensorProto, helper

from ..errors import InternalError

CONTRIB = "com.microsoft"
DATA_FILE = "model.onnx.data"
OPSETS = range(21, 25)
_INLINE_BYTES = 1024
_PAGE, _LINE = 4096, 64  # large tensors begin with a page, because runtimes map the file

_TYPES = {numpy.dtype(numpy.float32): TensorProto.FLOAT, numpy.dtype(numpy.float16): TensorProto.FLOAT16,
          numpy.dtype(numpy.int8): TensorProto.INT8, numpy.dtype(numpy.uint8): TensorProto.UINT8,
          numpy.dtype(numpy.int64): TensorProto.INT64}


def packed(codes, bits):
    """Codes as bytes; of 4-bit codes two in a byte, the first in the low half."""
    flat = codes.reshape(-1).view(numpy.uint8)
    if bits == 8:
        return flat
    flat = numpy.append(flat, numpy.uint8(0)) if flat.size % 2 else flat
    return flat[0::2] & 15 | flat[1::2] << 4


class Graph:
    """Tensors larger than a kilobyte are appended to `data`, an AtomicFile, at once."""

    def __init__(self, data):
        self._data, self._scope, self._counts = data, "", {}
        self.nodes, self.tensors, self.inputs, self.outputs = [], {}, [], []

    def scope(self, prefix):
        """The prefix of all following nodes' names: "layers.3."."""
        self._scope = prefix

    def _unique(self, op):
        name = self._scope + op
        count = self._counts[name] = self._counts.get(name, -1) + 1
        return f"{name}.{count}" if count else name

    def nodes_of(self, op, inputs, outputs, domain=None, **attributes):
        """Adds a node with several outputs, whose names are returned."""
        name = self._unique(op)
        made = [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name, domain=domain, **attributes))
        return made

    def add(self, op, *inputs, domain=None, **attributes):
        return self.nodes_of(op, inputs, 1, domain, **attributes)[0]

    def input(self, name, type, dims):
        self.inputs.append(helper.make_tensor_value_info(name, type, dims))
        return name

    def output(self, value, name, dims):
        """Makes an f32 value an output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name], self._unique("output." + name)))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def tensor(self, name, values, type=None, dims=None):
        """Stores an array; `type` and `dims` are given for bytes of another type than the array's."""
        if name in self.tensors:
            raise InternalError(f"onnx: two tensors {name}")
        values = numpy.ascontiguousarray(values).reshape(-1)
        shape = dims if dims is not None else ()
        stored = TensorProto(name=name, data_type=type or _TYPES[values.dtype], dims=[int(size) for size in shape])
        if values.nbytes <= _INLINE_BYTES:
            stored.raw_data = values.tobytes()
        else:
            self._data.align(_PAGE if values.nbytes >= _PAGE else _LINE)
            stored.data_location = TensorProto.EXTERNAL
            for key, value in (("location", DATA_FILE), ("offset", self._data.size), ("length", values.nbytes)):
                stored.external_data.add(key=key, value=str(value))
            self._data.append(values)
        self.tensors[name] = stored
        return name

    def array(self, name, values):
        """Stores an array with its own shape and type."""
        return self.tensor(name, values, dims=values.shape)

    def codes(self, name, codes, bits):
        """Stores integer codes with `bits` bits each, 4 or 8."""
        signed = codes.dtype == numpy.int8
        type = {4: (TensorProto.UINT4, TensorProto.INT4), 8: (TensorProto.UINT8, TensorProto.INT8)}[bits][signed]
        return self.tensor(name, packed(numpy.ascontiguousarray(codes), bits), type, codes.shape)

    # Equal constants share one tensor.

    def _constant(self, name, values):
        return name if name in self.tensors else self.array(name, values)

    def scalar(self, value):
        value = numpy.float32(value)
        return self._constant("const.f32." + re.sub(r"\.?0*p", "p", float(value).hex()), numpy.array(value))

    def integer(self, value):
        return self._constant(f"const.i64.{value}", numpy.array(value, numpy.int64))

    def integers(self, *values):
        return self._constant(f"const.i64[{' '.join(map(str, values))}]", numpy.array(values, numpy.int64))

    def zero_code(self):
        return self._constant("const.i8.0", numpy.array(0, numpy.int8))

    def model(self, name, opset, version, metadata):
        """The ModelProto of what was added."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.tensors.values()))
        imports = [helper.make_opsetid("", opset)]
        if any(node.domain == CONTRIB for node in self.nodes):
            imports.append(helper.make_opsetid(CONTRIB, 1))
        made = helper.make_model(graph, opset_imports=imports, producer_name="leq", producer_version=version,
                                 ir_version=helper.find_min_ir_version_for(imports[:1]))
        helper.set_model_props(made, metadata)
        return made
