"""A model's linears in the formats of the package compressed-tensors: int-quantized (W8A8, W8A16) and
pack-quantized (4 bits in groups)."""

import numpy

from ..errors import InputError
from .safetensors_file import SafeTensor


def compressed_tensors(source, checkpoint, quantized_inputs):
    """[SafeTensor] of the linears of layers, and "quantization_config". Raises an InputError naming the first linear
    whose codes or inputs the formats do not hold, and an alternative."""
    if not checkpoint["rotary"]:
        raise InputError(f"{checkpoint['family']}: its linears are no modules of class Linear, which compressed-tensors "
                         "wants; write floats instead")
    for index, layer in enumerate(source.layers):
        if layer.mixer["kind"] != "attention" or layer.mlp["kind"] != "dense":
            raise InputError(f"layer {index}: compressed-tensors are written of softmax attention and dense MLPs; "
                             "write floats instead")
    tensors, kinds = [], {}  # (bits, group, int8 inputs) -> names of modules
    for entry in checkpoint["tensors"]:
        if not entry["linear"]:
            continue
        tensor = source.tensors[entry["name"]]
        if tensor.name + ".inv_smooth" in source.tensors:
            raise InputError(f"{tensor.name}: a smoothing vector of its inputs has no place in compressed-tensors")
        act = tensor.act if quantized_inputs else "none"
        _check(tensor, act)
        module = entry["source"].rpartition(".")[0]
        kinds.setdefault((tensor.bits, tensor.group, act == "row"), []).append(module)
        tensors += _linear(source, tensor, module)
    return tensors, _config(dict(sorted(kinds.items())))


def _check(tensor, act):
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


def _linear(source, tensor, module):
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


def _config(kinds):
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
