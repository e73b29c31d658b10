"""Programs that run exported ONNX graphs, and what each of them refuses."""

from dataclasses import dataclass

from ..errors import InputError, SettingError
from .source import activation_of

# The operators of decoders that ONNX Runtime's NNAPI provider has.
_NNAPI = frozenset("Add Concat Div DequantizeLinear Gather Identity MatMul Max Mul QuantizeLinear ReduceMean "
                   "Reshape Sigmoid Softmax Split Sqrt Sub Tanh Transpose".split())


@dataclass(frozen=True)
class Target:
    name: str
    contrib: bool = False          # has MatMulNBits and GroupQueryAttention of com.microsoft
    float_embedding: bool = False  # rows are looked up in f32, not in codes
    dynamic_inputs: bool = True    # inputs may be quantized with scales that the graph computes
    zero_points: bool = True
    grouped_int8: bool = True         # 8-bit weights may have scales per group
    one_scale: bool = False           # 8-bit weights need one scale for the whole weight
    static_inputs_only: bool = False  # linears of layers need inputs with a stored scale
    fixed_shape: bool = False         # one sequence of fixed length, no past
    int4_blocks: tuple = ()           # groups of 4-bit weights; empty: none
    operators: frozenset = frozenset()  # all of them; empty: not checked


# Keys of a file's configuration whose meaning graphs have.
_CONFIG = frozenset("context embedding_scale family gated head_dim heads hidden kv_heads layers learned_positions "
                    "logit_cap mlp_bias mtp norm norm_eps output_bias post_norm_eps qk_norm qkv_bias rope_scaling "
                    "rope_theta rotary tied vocab width windows".split())
_MIXER = frozenset("kind output_bias qk_norm qkv_bias query_scale rope rotary window".split())
_MLP = frozenset("activation bias gated hidden kind".split())

TARGETS = {target.name: target for target in (
    Target("onnxruntime", int4_blocks=(32, 64, 128)),
    Target("tensorrt", float_embedding=True, dynamic_inputs=False, zero_points=False, grouped_int8=False,
           int4_blocks=(64, 128)),
    Target("nnapi", float_embedding=True, dynamic_inputs=False, zero_points=False, grouped_int8=False,
           one_scale=True, static_inputs_only=True, fixed_shape=True, operators=_NNAPI),
    Target("genai", contrib=True, int4_blocks=(32, 64, 128)))}


def find_target(name):
    if name not in TARGETS:
        raise SettingError(f'target "{name}" is not known, expected one of {", ".join(TARGETS)}')
    return TARGETS[name]


def _check_scheme(tensor, target):
    place = f"{tensor.name}: type {tensor.scheme}"
    if not tensor.codes:
        if target.static_inputs_only:
            raise InputError(f"{place} has no integers; {target.name} takes int8-tensor")
        return
    if tensor.codes == "uint" and not target.zero_points:
        raise InputError(f"{place} has zero points, which {target.name} does not hold; quantize to an int type")
    if tensor.bits == 8:
        if tensor.group and not target.grouped_int8:
            raise InputError(f"{place} has a scale for {tensor.group} columns; {target.name} holds one for a row of "
                             f"8-bit weights: {'int8-tensor' if target.one_scale else 'int8'}")
    elif not target.int4_blocks:
        raise InputError(f"{place}: {target.name} holds 8-bit weights alone; quantize to int8-tensor")
    elif tensor.group not in target.int4_blocks:
        raise InputError(f"{place} has groups of {tensor.group} columns, {target.name} holds groups of "
                         f"{' or '.join(map(str, target.int4_blocks))}")


def _check_inputs(tensor, target):
    if target.contrib:  # the operator quantizes inputs in its own blocks
        return
    if tensor.act == "online":
        raise InputError(f"{tensor.name}: act online remembers earlier steps, which no graph does; export with "
                         "--inputs f32")
    if not target.dynamic_inputs and tensor.act != "tensor":
        raise InputError(f"{tensor.name}: act {tensor.act} has no stored scale, and {target.name} quantizes inputs "
                         "with stored scales alone, in all linears or none; quantize with --act tensor"
                         + ("" if target.static_inputs_only else ", or export with inputs in f32"))


def _check_layer(place, layer):
    """Raises an InputError with the reason if graphs do not hold the layer's computation."""
    mixer, mlp = layer.mixer, layer.mlp
    if mixer["kind"] != "attention" or mlp["kind"] != "dense":
        reason = "exported graphs hold softmax attention and dense MLPs; this layer is of another kind"
    elif "temperature" in mixer:
        reason = "queries are scaled by their positions, which exported graphs do not do"
    elif mixer.get("output_gate"):
        reason = "attention has an output gate, which exported graphs do not have"
    elif mixer.get("rotary_dims", 0):
        reason = "RoPE rotates a part of each head, which exported graphs do not do"
    elif activation_of(mlp) not in ("silu", "gelu_tanh") or mixer.keys() - _MIXER or mlp.keys() - _MLP:
        unknown = sorted((mixer.keys() - _MIXER) | (mlp.keys() - _MLP)) or [activation_of(mlp)]
        raise InputError(f"{place}: {', '.join(unknown)}: exported graphs do not have this")
    else:
        return
    raise InputError(f"{place}: {reason}, which a folder of Hugging Face holds" if reason.endswith("another kind")
                     else f"{place}: {reason}; a folder of Hugging Face holds such layers")


def _check_heads(config, layer):
    # GroupQueryAttention has these limits; with RoPE it rotates 16 channels at once.
    multiple = 16 if layer.mixer["rotary"] else 8
    if config.head_dim % multiple:
        raise InputError(f"head_dim {config.head_dim}: the attention of onnxruntime-genai takes heads of a multiple "
                         f"of {multiple} channels; --target onnxruntime has no such limit")


def check_target(source, target, quantized_inputs):
    """Raises an InputError naming the first tensor or layer that the target does not hold, and what it takes."""
    unknown = sorted(vars(source.config).keys() - _CONFIG)
    if unknown:
        raise InputError(f"{source.config.family}: {', '.join(unknown)}: exported graphs do not have this")
    for index, layer in enumerate(source.layers):
        _check_layer(f"layer {index}", layer)
        if target.contrib:
            _check_heads(source.config, layer)
        for part in ("q", "k", "v", "o", "gate", "up", "down"):
            tensor = source.tensors.get(f"layers.{index}.{part}")
            if tensor is None:
                continue
            _check_scheme(tensor, target)
            if quantized_inputs:
                _check_inputs(tensor, target)
            if target.one_scale and not one_scale(source.codes(tensor.name)[1]):
                raise InputError(f"{tensor.name}: a scale for each row; {target.name} holds one for a whole weight: "
                                 "quantize to int8-tensor")


def one_scale(scales):
    return bool((scales == scales.flat[0]).all())


def check_operators(nodes, target):
    """The same of the finished graph."""
    for node in nodes:
        if target.operators and node.op_type not in target.operators:
            raise InputError(f"{node.name}: operator {node.op_type} is not one that {target.name} has")
