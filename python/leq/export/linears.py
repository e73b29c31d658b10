"""Linears and embeddings of a .leq file as nodes of an ONNX graph."""

import numpy
from onnx import TensorProto

from .graph import CONTRIB, packed
from .targets import one_scale

_SMALLEST_ABSMAX = 1e-12
_INT8_INPUTS = 4  # the accuracy_level of MatMulNBits for int8 inputs with one scale per block


class Linears:
    """`quantized_inputs`: inputs are quantized as in the file, otherwise f32. `tokens`: the length of a graph of
    fixed shape, whose linears multiply [tokens, K] matrices; 0: sizes are open."""

    def __init__(self, source, graph, target, quantized_inputs, tokens):
        self._source, self._graph, self._target = source, graph, target
        self._quantized_inputs, self._tokens = quantized_inputs, tokens

    def vector(self, name):
        """A vector of the file by its name; "" if the file has none."""
        if name in self._graph.tensors:
            return name
        if name not in self._source.tensors:
            return ""
        return self._graph.array(name, self._source.floats(name)[0])

    def outputs(self, prefix, names, x):
        """x [.., K] -> [.., N] for each linear. They share one input, which is smoothed and quantized once."""
        tensors = [self._source.tensors[prefix + name] for name in names]
        x = self._input(x, tensors[0])
        results = []
        for tensor in tensors:
            y = self._multiplied(x, tensor, False)
            bias = self.vector(tensor.name + ".bias")
            results.append(self._output(self._graph.add("Add", y, bias) if bias else y, tensor.rows))
        return results

    def logits(self, x, tied):
        """The head's weight may be that of the embedding."""
        weight = self._source.tensors["token_embedding" if tied else "head"]
        return self._output(self._multiplied(self._input(x, weight), weight, tied), weight.rows)

    def lookup(self, table, ids):
        """Rows of a table: ids [..] -> [.., W] f32"""
        weight = self._source.tensors[table]
        found = self._graph.add("Gather", self._table(weight), ids)
        if self._target.float_embedding or not weight.codes:
            return self._as_f32(found, weight)
        inputs = [found, self._graph.add("Gather", table + ".scales", ids)]
        if weight.codes == "uint":
            inputs.append(self._graph.add("Gather", table + ".zeros", ids))
        return self._graph.add("DequantizeLinear", *inputs, axis=-1, block_size=weight.group or weight.columns)

    def _input(self, x, first):
        # Some targets take linears of matrices alone.
        if self._tokens:
            x = self._graph.add("Reshape", x, self._graph.integers(self._tokens, first.columns))
        smooth = self.vector(first.name + ".inv_smooth")
        return self._quantized(self._graph.add("Mul", x, smooth) if smooth else x, first)

    def _output(self, y, outputs):
        return self._graph.add("Reshape", y, self._graph.integers(1, self._tokens, outputs)) if self._tokens else y

    def _quantized(self, x, first):
        """Quantizes x and dequantizes it again, in the file's input format."""
        graph = self._graph
        if not self._quantized_inputs or first.act == "none" or self._target.contrib:
            return x
        if first.act != "tensor":
            if not self._target.dynamic_inputs:
                return x  # reached only for the head, which check_target leaves out
            return self._dynamically_quantized(x, first.columns, {"g128": 128, "g32": 32}.get(first.act, first.columns))
        # QuantizeLinear clamps at -128, whereas leq clamps at -127.
        cut = graph.add("Max", x, graph.scalar(numpy.float32(-127) * numpy.float32(first.act_scale)))
        scale, zero = graph.scalar(first.act_scale), graph.zero_code()
        return graph.add("DequantizeLinear", graph.add("QuantizeLinear", cut, scale, zero), scale, zero)

    def _dynamically_quantized(self, x, columns, group):
        """One scale per `group` columns of each row: max |x| / 127."""
        graph, groups = self._graph, -(-columns // group)
        sizes = graph.add("Abs", x)
        if groups == 1:
            sizes = graph.add("ReduceMax", sizes, graph.integers(-1))
        else:
            batch = () if self._tokens else (0,)
            pad = groups * group - columns
            if pad:
                sizes = graph.add("Pad", sizes, graph.integers(*batch, 0, 0, *batch, 0, pad))
            sizes = graph.add("Reshape", sizes, graph.integers(*batch, 0, groups, group))
            sizes = graph.add("ReduceMax", sizes, graph.integers(-1), keepdims=0)
        largest = graph.add("Max", sizes, graph.scalar(_SMALLEST_ABSMAX))
        scale = graph.add("Div", largest, graph.scalar(127))
        blocks = {"axis": -1, "block_size": columns if groups == 1 else group}
        codes = graph.add("QuantizeLinear", x, scale, **blocks, output_dtype=TensorProto.INT8)
        return graph.add("DequantizeLinear", codes, scale, **blocks)

    def _multiplied(self, x, weight, is_table):
        """`is_table`: the weight is also that of the embedding, stored as [V][W]."""
        if self._target.contrib and weight.codes:
            return self._matmul_nbits(x, weight)
        matrix = self._dequantized(weight, is_table)
        if is_table:
            matrix = self._graph.add("Transpose", matrix, perm=[1, 0])
        return self._graph.add("MatMul", x, matrix)

    def _keeps_halves(self, weight):
        return weight.scheme in ("f16", "bf16") and not self._target.float_embedding

    def _as_f32(self, x, weight):
        return self._graph.add("Cast", x, to=TensorProto.FLOAT) if self._keeps_halves(weight) else x

    def _store_floats(self, weight, turned):
        """f16 and bf16 as stored, everything else as f32: [rows][columns], or turned."""
        values = self._source.floats(weight.name)
        if turned:
            values = values.T
        if not self._keeps_halves(weight):
            return self._graph.array(weight.name, values)
        if weight.scheme == "f16":
            return self._graph.array(weight.name, values.astype(numpy.float16))
        halves = (numpy.ascontiguousarray(values).view(numpy.uint32) >> 16).astype(numpy.uint16)
        return self._graph.tensor(weight.name, halves, TensorProto.BFLOAT16, halves.shape)

    def _dequantized(self, weight, is_table):
        """The f32 values of a weight: [K][N], or [V][W] for a table."""
        graph, name = self._graph, weight.name
        as_floats = not weight.codes or (is_table and self._target.float_embedding)
        if not as_floats:
            codes, scales, zeros = self._source.codes(name)
            # True only for the head, whose inputs may be floats; linears of layers were refused before.
            as_floats = self._target.one_scale and not one_scale(scales)
        if as_floats:
            return self._as_f32(self._table(weight) if is_table else self._store_floats(weight, True), weight)
        if is_table:
            return self._dequantized_table(weight)
        columns_first = (lambda values: values.T) if weight.group else (lambda values: values[:, 0])
        inputs = [graph.codes(name, codes.T, weight.bits), graph.array(name + ".scales", columns_first(scales))]
        if zeros is not None:
            inputs.append(graph.codes(name + ".zeros", columns_first(zeros), weight.bits))
        blocks = {"axis": 0, "block_size": weight.group} if weight.group else {"axis": 1}
        return graph.add("DequantizeLinear", *inputs, **blocks)

    def _dequantized_table(self, table):
        """The values [V][W] of a head that is also the lookup table; its scales are [V][blocks]."""
        graph = self._graph
        inputs = [table.name + ".scales"] + [table.name + ".zeros"] * (table.codes == "uint")
        codes = self._table(table)
        if table.group:
            return graph.add("DequantizeLinear", codes, *inputs, axis=1, block_size=table.group)
        inputs = [graph.add("Reshape", name, graph.integers(table.rows)) for name in inputs]
        return graph.add("DequantizeLinear", codes, *inputs, axis=0)

    def _table(self, table):
        """A table [V][W], as 8-bit codes with NAME.scales [V][blocks] (and NAME.zeros) or as floats. Runtimes do not
        look up rows of 4-bit codes."""
        name = table.name
        if name in self._graph.tensors:
            return name
        if self._target.float_embedding or not table.codes:
            return self._store_floats(table, False)
        codes, scales, zeros = self._source.codes(name)
        self._graph.array(name + ".scales", scales)
        if zeros is not None:
            self._graph.array(name + ".zeros", zeros)
        return self._graph.array(name, codes)

    def _matmul_nbits(self, x, weight):
        """MatMulNBits reads unsigned codes [N][blocks][block]; row scales are repeated for each block."""
        graph, name, bits = self._graph, weight.name + ".blocks", weight.bits
        codes, scales, zeros = self._source.codes(weight.name)
        # Of rows with one scale, the largest block that divides the row; if none does, the last is shorter.
        block = weight.group or next((size for size in (128, 64, 32) if weight.columns % size == 0), 32)
        count = -(-weight.columns // block)
        if not weight.group:
            scales = numpy.repeat(scales, count, axis=1)
            zeros = None if zeros is None else numpy.repeat(zeros, count, axis=1)
        blocks = numpy.empty((weight.rows, count * block), numpy.uint8)
        padding = numpy.uint8(1 << (bits - 1)) if zeros is None else zeros[:, -1:]
        blocks[:, :weight.columns] = codes.view(numpy.uint8) + (padding if zeros is None else numpy.uint8(0))
        blocks[:, weight.columns:] = padding
        inputs = [x, graph.tensor(name, packed(blocks, bits), dims=(weight.rows, count, block * bits // 8)),
                  graph.array(name + ".scales", scales)]
        if zeros is not None:
            if bits == 4 and count % 2:  # packed row by row
                zeros = numpy.pad(zeros, ((0, 0), (0, 1)))
            zeros = packed(zeros, bits).reshape(weight.rows, -1)
            inputs.append(graph.array(name + ".zeros", zeros))
        level = {"accuracy_level": _INT8_INPUTS} if self._quantized_inputs and weight.act != "none" else {}
        return graph.add("MatMulNBits", *inputs, domain=CONTRIB, K=weight.columns, N=weight.rows, bits=bits,
                         block_size=block, **level)
