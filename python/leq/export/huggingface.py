"""A Hugging Face folder: config.json, model.safetensors, tokenizer files."""

import json

import numpy

from ..errors import InputError
from .files import Folder, SafeTensor, write_safetensors
from .hf_config import family_of, generation_config, hf_config
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
        linears, config["quantization_config"] = _compressed_tensors(source, checkpoint, inputs != "f32")
        tensors = _float_tensors(source, [t for t in checkpoint["tensors"] if not t["linear"]], checkpoint["rules"])
        tensors += linears
    else:
        tensors = _float_tensors(source, checkpoint["tensors"], checkpoint["rules"])
    notes = ["the head of multi-token prediction is left out"] if source.config.mtp else []
    files = {"generation_config.json": _text(generation_config(source)),
             **tokenizer_files(source, "transformers", notes), "config.json": _text(config)}
    with Folder(folder, "config.json") as written:
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
    if rule["transposed"]:
        made.reverse()
    if rule["stacked"]:
        made.insert(0, len(members) // rule["parts"])
        rows *= made[0]
    if rule["taps_first"]:  # [taps][channels], stored as a vector
        rows = next(taps for layer in source.layers
                    if (taps := layer.mixer.get("conv_taps") or layer.mixer.get("taps")))
        columns = shape[0] // rows
        made = [columns, 1, rows]

    def values():
        out = numpy.empty((rows, columns), numpy.float32)
        for member in members:
            own = rules[member["rule"]]
            part = _smoothed(source, member).reshape(-1, columns)
            out[own.get("rows", _rows_of(member, own, len(part)))] = part - numpy.float32(own["added"])
        if rule["transposed"] and rule["stacked"]:
            return out.reshape(made[0], -1, columns).transpose(0, 2, 1)
        return out.T if rule["transposed"] or rule["taps_first"] else out

    return SafeTensor(name, "F32", made, values)


def _rows_of(member, rule, count):
    """Rows of a member among those of all parts and experts."""
    parts, first = rule["parts"], member.get("expert", 0) * rule["parts"] * count
    if rule["interleaved"]:
        return slice(first + rule["part"], first + parts * count, parts)
    return slice(first + rule["part"] * count, first + (rule["part"] + 1) * count)


def _smoothed(source, entry):
    values = source.floats(entry["name"])
    smooth = entry["site"] + ".inv_smooth"
    if len(entry["shape"]) == 2 and smooth in source.tensors:
        values *= source.floats(smooth)
    return values


# ---- compressed-tensors: int-quantized (W8A8, W8A16) and pack-quantized (4 bits in groups) ----


def _compressed_tensors(source, checkpoint, quantized_inputs):
    """[SafeTensor] of the linears of layers, and "quantization_config". Raises an InputError naming the first linear
    whose codes or inputs the formats do not hold, and an alternative."""
    if not checkpoint["rotary"]:
        raise InputError(f"{checkpoint['family']}: its linears are no modules of class Linear, which "
                         "compressed-tensors wants; write floats instead")
    for index, layer in enumerate(source.layers):
        if layer.mixer["kind"] != "attention" or layer.mlp["kind"] != "dense":
            raise InputError(f"layer {index}: compressed-tensors are written of softmax attention and dense MLPs; "
                             "write floats instead")
    tensors, kinds = [], {}  # (bits, group, int8 inputs) -> names of modules
    for entry in checkpoint["tensors"]:
        if not entry["linear"]:
            continue
        tensor = source.tensors[entry["name"]]
        if checkpoint["rules"][entry["rule"]]["parts"] > 1:
            raise InputError(f"{tensor.name}: {checkpoint['family']} joins it with others in one tensor, which "
                             "compressed-tensors are not written of; write floats instead")
        if tensor.name + ".inv_smooth" in source.tensors:
            raise InputError(f"{tensor.name}: a smoothing vector of its inputs has no place in compressed-tensors")
        act = tensor.act if quantized_inputs else "none"
        _check_linear(tensor, act)
        module = entry["source"].rpartition(".")[0]
        kinds.setdefault((tensor.bits, tensor.group, act == "row"), []).append(module)
        tensors += _linear_tensors(source, tensor, module)
    return tensors, _quantization_config(dict(sorted(kinds.items())))


def _check_linear(tensor, act):
    if tensor.codes != "int":
        raise InputError(f"{tensor.name}: type {tensor.scheme}: compressed-tensors are written of int8 and int4-g* "
                         "types; write floats instead")
    if act not in ("none", "row"):
        raise InputError(f"{tensor.name}: act {act}: compressed-tensors are written with inputs in f32 or int8 with a "
                         "scale for a row; write them with --inputs f32, or quantize with --act row")
    if tensor.group and tensor.columns % tensor.group:
        smaller = [group for group in (64, 32) if group < tensor.group and tensor.columns % group == 0]
        advice = f"choose a group of {smaller[0]}" if smaller else "quantize to int8, or write floats"
        raise InputError(f"{tensor.name}: {tensor.columns} columns are no multiple of the group of {tensor.group}, as "
                         f"compressed-tensors wants; {advice}")


def _linear_tensors(source, tensor, module):
    rows, columns, bits = tensor.rows, tensor.columns, tensor.bits

    def codes():
        return source.codes(tensor.name)[0]

    def words():
        """32 / bits codes in a word, with 2^(bits - 1) added, the first one in the low bits."""
        each = 32 // bits
        biased = codes().view(numpy.uint8) + numpy.uint8(1 << (bits - 1))
        biased = numpy.pad(biased, ((0, 0), (0, -columns % each)))
        if bits == 4:
            biased = biased[:, 0::2] | biased[:, 1::2] << 4
        return biased.view("<i4")

    made = [SafeTensor(module + ".weight_scale", "F32", [rows, tensor.blocks], lambda: source.codes(tensor.name)[1])]
    if not tensor.group:
        return [*made, SafeTensor(module + ".weight", "I8", [rows, columns], codes)]
    return [*made, SafeTensor(module + ".weight_packed", "I32", [rows, -(-columns * bits // 32)], words),
            SafeTensor(module + ".weight_shape", "I64", [2], lambda: numpy.array([rows, columns], numpy.int64))]


def _arguments(bits, strategy, group, dynamic):
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, "dynamic": dynamic,
            "block_structure": None, "actorder": None, "group_size": group or None}


def _quantization_config(kinds):
    groups = {}
    for (bits, group, int8_inputs), modules in kinds.items():
        groups[f"group_{len(groups)}"] = {
            "targets": modules, "format": "pack-quantized" if group else "int-quantized", "output_activations": None,
            "weights": _arguments(bits, "group" if group else "channel", group, False),
            "input_activations": _arguments(8, "token", 0, True) if int8_inputs else None}
    formats = {group["format"] for group in groups.values()}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed",
            "format": formats.pop() if len(formats) == 1 else "mixed-precision", "config_groups": groups,
            "ignore": ["lm_head"]}
