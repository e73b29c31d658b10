"""A decoder as an ONNX graph, in operators of ai.onnx and, for onnxruntime-genai, also of com.microsoft.

Inputs: input_ids [B, S], attention_mask [B, P + S] (1: a token, 0: padding), position_ids [B, S],
past_key_values.I.key and .value [B, H_kv, P, d]; outputs: logits [B, S, V], present.I.key and .value
[B, H_kv, P + S, d]. Without a past, the tensors with P are absent; a graph of fixed shape has only
input_ids [1, S]. No tensor has more than four axes, which is the limit of some targets."""

import math
from dataclasses import dataclass

import numpy
from onnx import TensorProto

from .graph import CONTRIB
from .linears import Linears
from .source import activation_of

_HEADS_FIRST, _COLUMNS_FIRST = [0, 2, 1, 3], [0, 1, 3, 2]
_HIDDEN = numpy.finfo(numpy.float32).min  # added to hidden scores
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class GraphOptions:
    past: bool              # keys and values of earlier positions are inputs and outputs
    quantized_inputs: bool  # inputs of linears are quantized as in the file
    tokens: int             # length of a graph with fixed shape; 0: open
    context: int            # positions with rotary frequencies


def add_decoder(source, target, options, graph):
    _Decoder(source, target, options, graph).build()


class _Decoder:
    def __init__(self, source, target, options, graph):
        self._source, self._config, self._target = source, source.config, target
        self._options, self._graph = options, graph
        self._linears = Linears(source, graph, target, options.quantized_inputs, options.tokens)
        self._masks = {}  # by window: [B or 1, 1, G S, P + S], added to scores

    def build(self):
        config, graph, tokens = self._config, self._graph, self._options.tokens
        self._add_inputs()
        x = self._embedding()
        for index, layer in enumerate(self._source.layers):
            prefix = f"layers.{index}."
            graph.scope(prefix)
            x = self._added(x, self._mixer(index, layer.mixer, config.norm, x), prefix + "attention_post_norm")
            x = self._added(x, self._mlp(prefix, layer.mlp, config.norm, x), prefix + "mlp_post_norm")
        graph.scope("")
        x = self._norm(x, "final_norm", config.norm)
        logits = self._capped(self._linears.logits(x, config.tied))
        shape = [1, tokens, config.vocab] if tokens else ["batch_size", "sequence_length", config.vocab]
        graph.output(logits, "logits", shape)
        graph.outputs.insert(0, graph.outputs.pop())

    def _add_inputs(self):
        config, graph, options = self._config, self._graph, self._options
        if options.tokens:
            self._ids = graph.input("input_ids", TensorProto.INT32, [1, options.tokens])
        else:
            shape = ["batch_size", "sequence_length"]
            total = "total_sequence_length" if options.past else "sequence_length"
            self._ids = graph.input("input_ids", TensorProto.INT64, shape)
            self._attention_mask = graph.input("attention_mask", TensorProto.INT64, ["batch_size", total])
            # com.microsoft's attention computes the positions for RoPE itself.
            if not self._target.contrib or config.learned_positions:
                self._positions = graph.input("position_ids", TensorProto.INT64, shape)
        if self._target.contrib:
            self._add_lengths()
        if self._source.rotary:
            self._add_rotary()

    def _added(self, x, out, norm):
        """x + out, or with the sublayer's output normalized."""
        config = self._config
        return self._graph.add("Add", x, self._norm(out, norm, config.norm, config.post_norm_eps)
                               if config.post_norm_eps else out)

    def _capped(self, logits):
        """cap tanh(scale logits / cap)"""
        graph, limit = self._graph, self._config.logit_cap
        if not limit:
            return logits
        tanh = graph.add("Tanh", graph.add("Mul", logits, graph.scalar(limit["scale"] / limit["cap"])))
        return graph.add("Mul", tanh, graph.scalar(limit["cap"]))

    def _embedding(self):
        """x [B, S, W] f32"""
        graph, tokens = self._graph, self._options.tokens
        x = self._linears.lookup("token_embedding", self._ids)
        if self._config.embedding_scale != 1:
            x = graph.add("Mul", x, graph.scalar(self._config.embedding_scale))
        if not self._config.learned_positions:
            return x
        if not tokens:
            return graph.add("Add", x, self._linears.lookup("position_embedding", self._positions))
        return graph.add("Add", x, graph.array("position_embedding",
                                               self._source.floats("position_embedding")[None, :tokens]))

    def _norm(self, x, name, kind, eps=0):
        """Normalizes the last axis, in operators that every target has. `eps`: 0 = that of most norms."""
        graph = self._graph
        if kind == "layer":
            x = graph.add("Sub", x, graph.add("ReduceMean", x, graph.integers(-1)))
        mean = graph.add("ReduceMean", graph.add("Mul", x, x), graph.integers(-1))
        size = graph.add("Sqrt", graph.add("Add", mean, graph.scalar(eps or self._config.norm_eps)))
        scaled = graph.add("Mul", graph.add("Div", x, size), self._linears.vector(name))
        return graph.add("Add", scaled, self._linears.vector(name + ".bias")) if kind == "layer" else scaled

    def _mixer(self, index, mixer, norm, x):
        """o(attention(qkv(norm(x)))) [B, S, W]"""
        prefix, config = f"layers.{index}.", self._config
        q, k, v = self._linears.outputs(prefix, ["q", "k", "v"], self._norm(x, prefix + "attention_norm", norm))
        if self._target.contrib:
            out = self._contrib_attention(index, mixer, q, k, v)
        else:
            q, k = self._heads(q, config.heads), self._heads(k, config.kv_heads)
            if mixer["qk_norm"]:
                q = self._norm(q, prefix + "q_norm", config.norm)
                k = self._norm(k, prefix + "k_norm", config.norm)
            if mixer["rotary"]:
                q, k = self._roped(q, mixer["rope"]), self._roped(k, mixer["rope"])
            k = self._with_past(index, "key", k)
            v = self._with_past(index, "value", self._heads(v, config.kv_heads))
            out = self._attention(prefix, q, k, v, mixer)
        return self._linears.outputs(prefix, ["o"], out)[0]

    def _mlp(self, prefix, mlp, norm, x):
        """down(f(gate) up) or down(f(up)) [B, S, W]"""
        x = self._norm(x, prefix + "mlp_norm", norm)
        first, *up = self._linears.outputs(prefix, ["gate", "up"] if mlp["gated"] else ["up"], x)
        product = self._activated(first, mlp)
        if up:
            product = self._graph.add("Mul", product, up[0])
        return self._linears.outputs(prefix, ["down"], product)[0]

    def _activated(self, x, mlp):
        graph = self._graph
        if activation_of(mlp) == "silu":
            return graph.add("Mul", x, graph.add("Sigmoid", x))
        # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        cube = graph.add("Mul", graph.add("Mul", x, x), x)
        inner = graph.add("Add", x, graph.add("Mul", cube, graph.scalar(0.044715)))
        tanh = graph.add("Tanh", graph.add("Mul", inner, graph.scalar(0.79788456)))
        half = graph.add("Mul", x, graph.scalar(0.5))
        return graph.add("Mul", half, graph.add("Add", tanh, graph.scalar(1)))

    # ---- Positions and masks ----

    def _add_rotary(self):
        """Cosines and sines of each rule of RoPE."""
        graph, options = self._graph, self._options
        ropes = self._source.ropes(options.context)
        if options.tokens or self._target.contrib:
            rows = options.tokens or options.context
            self._rotary = [self._fixed_rotary(f"rotary.{i}", *rope, rows) for i, rope in enumerate(ropes)]
            return
        positions = graph.add("Unsqueeze", graph.add("Cast", self._positions, to=TensorProto.FLOAT),
                              graph.integers(1, 3))
        self._rotary = [self._open_rotary(f"rotary.{i}", *rope, positions) for i, rope in enumerate(ropes)]

    def _open_rotary(self, name, inv_freq, factor, positions):
        graph = self._graph
        angles = graph.add("Mul", positions, graph.array(name + ".inv_freq", inv_freq))  # [B, 1, S, d/2]
        tables = graph.add("Cos", angles), graph.add("Sin", angles)
        return tables if factor == 1 else [graph.add("Mul", table, graph.scalar(factor)) for table in tables]

    def _fixed_rotary(self, name, inv_freq, factor, rows):
        """Tables for positions 0 to `rows` - 1, [rows, d/2], with the arithmetic of docs/numerics.md: angles in f32,
        the C library's functions in f64."""
        shape = (rows, len(inv_freq)) if self._target.contrib else (1, 1, rows, len(inv_freq))
        tables = []
        for function in (math.cos, math.sin):
            table = numpy.empty((rows, len(inv_freq)), numpy.float32)
            for first in range(0, rows, _ROWS_AT_ONCE):
                part = table[first:first + _ROWS_AT_ONCE]
                positions = numpy.arange(first, first + len(part), dtype=numpy.float32)
                angles = (positions[:, None] * inv_freq).ravel().tolist()
                part[:] = numpy.fromiter(map(function, angles), numpy.float64, len(angles)).reshape(part.shape)
            tables.append(table.reshape(shape) * factor)
        return self._graph.array(name + ".cosines", tables[0]), self._graph.array(name + ".sines", tables[1])

    def _add_lengths(self):
        """Inputs of GroupQueryAttention: the last position of each sequence, and the total length."""
        graph = self._graph
        counts = graph.add("ReduceSum", self._attention_mask, graph.integers(1), keepdims=0)
        self._past_lengths = graph.add("Cast", graph.add("Sub", counts, graph.integer(1)), to=TensorProto.INT32)
        total = graph.add("Gather", graph.add("Shape", self._attention_mask), graph.integer(1))
        self._total_length = graph.add("Cast", total, to=TensorProto.INT32)

    def _mask(self, window):
        """Query i at position P + i attends to key j if P + i - window < j <= P + i and j is not padding."""
        if window not in self._masks:
            self._masks[window] = self._fixed_mask(window) if self._options.tokens else self._open_mask(window)
        return self._masks[window]

    def _open_mask(self, window):
        graph = self._graph
        graph.scope(f"mask.{window}.")

        def length(of):
            return graph.add("Gather", graph.add("Shape", of), graph.integer(1))

        total = length(self._attention_mask)
        first, one = graph.add("Sub", total, length(self._ids)), graph.integer(1)
        queries = graph.add("Unsqueeze", graph.add("Range", first, total, one), graph.integers(1))
        distance = graph.add("Sub", queries, graph.add("Range", graph.integer(0), total, one))  # [S, P + S]
        seen = graph.add("GreaterOrEqual", distance, graph.integer(0))
        if window:
            seen = graph.add("And", seen, graph.add("Less", distance, graph.integer(window)))
        tokens = graph.add("Unsqueeze", graph.add("Cast", self._attention_mask, to=TensorProto.BOOL),
                           graph.integers(1, 2))
        seen = graph.add("And", seen, tokens)  # [B, 1, S, P + S]
        mask = graph.add("Where", seen, graph.scalar(0), graph.scalar(_HIDDEN))
        group = self._config.heads // self._config.kv_heads  # query heads that share a key head
        return graph.add("Concat", *[mask] * group, axis=2) if group > 1 else mask

    def _fixed_mask(self, window):
        tokens, group = self._options.tokens, self._config.heads // self._config.kv_heads
        places = numpy.arange(tokens, dtype=numpy.int32)
        distance = places[:, None] - places
        seen = (distance >= 0) & ((distance < window) if window else True)
        mask = numpy.where(seen, numpy.float32(0), _HIDDEN)
        return self._graph.array(f"mask.{window}", numpy.tile(mask, (group, 1))[None, None])

    # ---- Attention ----

    def _heads(self, x, heads):
        """Splits heads: [B, S, heads d] -> [B, heads, S, d]"""
        cut = self._graph.add("Reshape", x, self._graph.integers(0, 0, heads, self._config.head_dim))
        return self._graph.add("Transpose", cut, perm=_HEADS_FIRST)

    def _roped(self, x, rule):
        """RoPE on [B, heads, S, d], rotating the pairs (i, i + d/2)."""
        graph, (cosines, sines) = self._graph, self._rotary[rule]
        low, high = graph.nodes_of("Split", [x], 2, axis=-1, num_outputs=2)
        first = graph.add("Sub", graph.add("Mul", low, cosines), graph.add("Mul", high, sines))
        second = graph.add("Add", graph.add("Mul", high, cosines), graph.add("Mul", low, sines))
        return graph.add("Concat", first, second, axis=-1)

    def _cache_shape(self, positions):
        return ["batch_size", self._config.kv_heads, positions, self._config.head_dim]

    def _past(self, index, part):
        return self._graph.input(f"past_key_values.{index}.{part}", TensorProto.FLOAT,
                                 self._cache_shape("past_sequence_length"))

    def _present(self, index, part, value):
        self._graph.output(value, f"present.{index}.{part}", self._cache_shape("total_sequence_length"))

    def _with_past(self, index, part, x):
        """Past keys or values and x, [B, H_kv, P + S, d], which are an output of the graph too."""
        if not self._options.past:
            return x
        x = self._graph.add("Concat", self._past(index, part), x, axis=2)
        self._present(index, part, x)
        return x

    def _attention(self, prefix, q, k, v, mixer):
        """q [B, H, S, d], k and v [B, H_kv, T, d] -> [B, S, H d]"""
        config, graph = self._config, self._graph
        mask, d = self._mask(mixer["window"]), config.head_dim
        graph.scope(prefix)
        grouped = config.kv_heads != config.heads
        q = graph.add("Mul", q, graph.scalar(mixer.get("query_scale") or 1 / math.sqrt(d)))
        if grouped:
            q = graph.add("Reshape", q, graph.integers(0, config.kv_heads, -1, d))
        scores = graph.add("MatMul", q, graph.add("Transpose", k, perm=_COLUMNS_FIRST))  # [B, H_kv, G S, T]
        shares = graph.add("Softmax", graph.add("Add", scores, mask), axis=-1)
        out = graph.add("MatMul", shares, v)
        if grouped:
            out = graph.add("Reshape", out, graph.integers(0, config.heads, -1, d))
        out = graph.add("Transpose", out, perm=_HEADS_FIRST)
        return graph.add("Reshape", out, graph.integers(0, 0, config.heads * d))

    def _contrib_attention(self, index, mixer, q, k, v):
        """Attention with RoPE and cache as one operator; norms of heads are applied before it."""
        config, graph = self._config, self._graph
        if mixer["qk_norm"]:
            def normed(x, heads, part):
                x = graph.add("Reshape", x, graph.integers(0, 0, heads, config.head_dim))
                x = self._norm(x, f"layers.{index}.{part}", config.norm)
                return graph.add("Reshape", x, graph.integers(0, 0, heads * config.head_dim))

            q, k = normed(q, config.heads, "q_norm"), normed(k, config.kv_heads, "k_norm")
        inputs = [q, k, v, self._past(index, "key"), self._past(index, "value"), self._past_lengths,
                  self._total_length]
        others = {"local_window_size": mixer["window"]} if mixer["window"] else {}
        if mixer.get("query_scale"):
            others["scale"] = mixer["query_scale"]
        if mixer["rotary"]:
            inputs += self._rotary[mixer["rope"]]
        out, keys, values = graph.nodes_of("GroupQueryAttention", inputs, 3, CONTRIB, num_heads=config.heads,
                                           kv_num_heads=config.kv_heads, do_rotary=int(mixer["rotary"]), **others)
        self._present(index, "key", keys)
        self._present(index, "value", values)
        return out
