"""A .leq file as the exporters read it: configuration, tensors as numpy arrays, tables."""

import json
import os
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy

from .. import _leq
from ..tokenizer import path_bytes

_SCHEME = re.compile(r"(u?)int(\d)(?:-g(\d+)|-tensor)?")


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file. A vector [n] has one row. `codes` is "int", "uint", or "" for types without plain
    codes; codes of 2 and 3 bits are exported as 4."""

    name: str
    rows: int
    columns: int
    scheme: str
    act: str  # how the inputs of a linear are quantized
    act_scale: float
    codes: str
    stored_bits: int
    group: int  # columns with one scale; 0: a row

    @property
    def bits(self):
        return 8 if self.stored_bits == 8 else 4

    @property
    def blocks(self):
        """Scales of a row."""
        return -(-self.columns // self.group) if self.group else 1


def _tensor(said):
    rows, columns = said["shape"] if len(said["shape"]) == 2 else (1, said["shape"][0])
    scheme = _SCHEME.fullmatch(said["scheme"])
    codes = ("uint" if scheme[1] else "int") if scheme else ""
    return Tensor(said["name"], rows, columns, said["scheme"], said["act"], said.get("act_scale", 0.0), codes,
                  int(scheme[2]) if scheme else 0, int(scheme[3] or 0) if scheme else 0)


def activation_of(mlp):
    return mlp.get("activation", "silu" if mlp.get("gated", True) else "gelu_tanh")


class Source:
    """An opened file whose checksums were compared: damage would be harder to find later."""

    def __init__(self, path):
        self._model = _leq.Model(path_bytes(path), load=1)
        self._model.verify()
        said = json.loads(self._model.inspect())
        self.facts = json.loads(self._model.describe())
        self.name, self.type = said["file"], said["type"]
        self.chat_template = said["chat_template"]
        self.has_tokenizer = said["tokenizer"] is not None
        self.bos = self._model.info()["bos"]  # -1: none
        self.end_tokens = self.facts["end_tokens"]
        self.layers = [SimpleNamespace(mixer=layer["mixer"], mlp=layer["mlp"]) for layer in self.facts["layers"]]
        self.config = SimpleNamespace(**{"post_norm_eps": 0, "logit_cap": None, "mtp": None, "embedding_scale": 1,
                                         **said["config"],
                                         "learned_positions": self.facts["learned_positions"]})
        self.tensors = {tensor["name"]: _tensor(tensor) for tensor in said["tensors"]}

    @property
    def rotary(self):
        return bool(self.facts["ropes"])

    def ropes(self, context):
        """Of each rule of RoPE (a layer's mixer["rope"] is the index): float32 [d / 2] inverse frequencies for a
        context, and the factor on cosines and sines."""
        return [(numpy.array(rope["inv_freq"], numpy.float32), numpy.float32(rope["attention_factor"]))
                for rope in json.loads(self._model.describe(None, context))["ropes"]]

    def rope_rule(self, index):
        """{"rope_theta", "rope_scaling"} of the rule of RoPE with this index."""
        for place, layer in enumerate(self.layers):
            if layer.mixer.get("rope") == index:
                stored = self.config.layers
                own = stored[place]["mixer"].get("rope") if isinstance(stored, list) else None
                return own or vars(self.config)
        raise IndexError(index)

    def checkpoint(self, model_type):
        """How the class of transformers with this model_type stores the model; "": that of the file's family."""
        return json.loads(self._model.describe(model_type))["checkpoint"]

    def floats(self, name):
        """float32 [rows, columns]"""
        tensor = self.tensors[name]
        values = numpy.empty((tensor.rows, tensor.columns), numpy.float32)
        self._model.tensor_floats(name, values)
        return values

    def codes(self, name):
        """Codes [rows, columns] in int8 or uint8, scales float32 [rows, blocks], and zero points uint8 or None."""
        tensor = self.tensors[name]
        codes = numpy.empty((tensor.rows, tensor.columns), numpy.uint8)
        scales = numpy.empty((tensor.rows, tensor.blocks), numpy.float32)
        zeros = numpy.empty(scales.shape, numpy.uint8) if tensor.codes == "uint" else None
        self._model.tensor_codes(name, codes, scales, zeros)
        return codes if tensor.codes == "uint" else codes.view(numpy.int8), scales, zeros

    def table(self, name, dtype=numpy.uint8):
        return self._model.table(name).view(dtype)
