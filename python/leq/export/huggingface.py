"""A Hugging Face folder: config.json, model.safetensors, tokenizer files."""

import json

import numpy

from ..errors import InputError
from .compressed_tensors import compressed_tensors
from .files import Folder
from .hf_config import family_of, generation_config, hf_config
from .safetensors_file import SafeTensor, write_safetensors
from .source import Source
from .tokenizer_files import tokenizer_files

_WEIGHTS_FILE = "model.safetensors"


def export_huggingface(path, folder, *, compressed=False, inputs="auto"):
    """Writes the .leq file at `path` as a folder that transformers reads.

    compressed  the file's integers and scales in the formats of the package compressed-tensors; otherwise the
                dequantized values, f32
    inputs      of compressed linears: "auto" or "file" (int8 with a scale per row if the file's are), or "f32"

    Returns the Folder that was written, and a list of notes. Raises leq.Error naming what no class of
    transformers computes, or the first linear that the formats do not hold. config.json is written last: a
    folder without it is incomplete."""
    source = Source(path)
    checkpoint = family_of(source)
    if source.config.tied and "token_embedding.inv_smooth" in source.tensors:
        raise InputError("token_embedding: a smoothing vector of a tied head has no place in transformers")
    config = hf_config(source, checkpoint)
    if compressed:
        linears, config["quantization_config"] = compressed_tensors(source, checkpoint, inputs != "f32")
        tensors = _float_tensors(source, [t for t in checkpoint["tensors"] if not t["linear"]], checkpoint["rules"])
        tensors += linears
    else:
        tensors = _float_tensors(source, checkpoint["tensors"], checkpoint["rules"])
    notes = ["the head of multi-token prediction is left out"] if source.config.mtp else []
    files = {"generation_config.json": _text(generation_config(source)),
             **tokenizer_files(source, "transformers", notes), "config.json": _text(config)}
    written = Folder(folder, "config.json")
    with written.file(_WEIGHTS_FILE) as file:
        write_safetensors(file, tensors)
        written.commit(_WEIGHTS_FILE, file)
    for name, text in files.items():
        written.write(name, text)
    return written, notes


def _text(config):
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


# ---- Values in the layout of a class of transformers ----


def _float_tensors(source, entries, rules):
    """Tensors as f32 in the layout of the family's class: parts joined, rows in its order, transposed if it stores
    [K][N]. Smoothing vectors are multiplied into the weights."""
    joined = {}  # by name in transformers, in leq's order
    for entry in entries:
        joined.setdefault(entry["source"], []).append(entry)
    return [_joined(source, name, members, rules) for name, members in joined.items()]


def _joined(source, name, members, rules):
    rule, shape = rules[members[0]["rule"]], members[-1]["shape"]
    columns = shape[1] if len(shape) == 2 else 1
    rows = rule.get("stored_rows", shape[0] * rule["parts"])
    made = [rows, *shape[1:]]
    if rule["stacked"]:
        made.insert(0, len(members) // rule["parts"])
        rows *= made[0]
    if rule["transposed"]:
        made[0], made[1] = made[1], made[0]
    if rule["taps_first"]:  # [taps][channels], stored as a vector
        rows = next(layer.mixer["conv_taps"] for layer in source.layers if layer.mixer["kind"] == "delta_net")
        columns = shape[0] // rows
        made = [columns, 1, rows]

    def values():
        out = numpy.empty((rows, columns), numpy.float32)
        for member in members:
            own = rules[member["rule"]]
            part = _smoothed(source, member).reshape(-1, columns)
            first = (member.get("expert", 0) * own["parts"] + own["part"]) * len(part)
            places = own.get("rows", slice(first, first + len(part)))
            out[places] = part - numpy.float32(own["added"])
        return out.T if rule["transposed"] or rule["taps_first"] else out

    return SafeTensor(name, "F32", made, values)


def _smoothed(source, entry):
    values = source.floats(entry["name"])
    smooth = entry["site"] + ".inv_smooth"
    if len(entry["shape"]) == 2 and smooth in source.tensors:
        values *= source.floats(smooth)
    return values
