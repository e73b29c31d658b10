"""A folder with an ONNX model: model.onnx, its data in model.onnx.data and, for onnxruntime-genai, its
configuration and tokenizer."""

import json
from collections import Counter

import onnx

from .. import _leq
from ..errors import SettingError
from .decoder import GraphOptions, add_decoder
from .files import Folder
from .graph import DATA_FILE, OPSETS, Graph
from .source import Source
from .targets import check_operators, check_target, find_target
from .tokenizer_files import tokenizer_files

_MODEL_FILE = "model.onnx"
_MOST_TABLE_NUMBERS = 1 << 28  # of tables with a number per position, or per pair of positions


def export_onnx(path, folder, *, target="onnxruntime", inputs="auto", past=True, opset=OPSETS[0], tokens=0,
                context=0):
    """Writes the .leq file at `path` as an ONNX model.

    target   "onnxruntime", "tensorrt", "nnapi" or "genai"
    inputs   of linears: "file" (quantized as in the file), "f32", or "auto", which is "file" if the file has
             stored scales, and for genai
    past     keys and values of earlier positions are inputs and outputs of the graph
    tokens   length of a graph of fixed sizes, which has no past; 0: sizes are open
    context  positions that the graph is made for; 0: the model's

    Returns the Folder that was written, and a list of notes. Raises leq.Error naming the tensor and the target
    if the target does not hold it, or the setting that contradicts the target. model.onnx is written last: a
    folder without it is incomplete."""
    source, target = Source(path), find_target(target)
    if opset not in OPSETS:
        raise SettingError(f"--opset {opset}: expected {OPSETS[0]} to {OPSETS[-1]}")
    options = _graph_options(source, target, inputs, past, tokens, context)
    check_target(source, target, options.quantized_inputs)
    notes = []
    others = _genai_files(source, options.context, notes) if target.contrib else {}
    with Folder(folder, _MODEL_FILE) as written:
        with written.file(DATA_FILE) as data:
            graph = Graph(data)
            add_decoder(source, target, options, graph)
            check_operators(graph.nodes, target)
            written.commit(DATA_FILE, data)
        for name, text in others.items():
            written.write(name, text)
        model = graph.model(source.config.family, opset, _leq.__version__,
                            {"leq.target": target.name, "leq.type": source.type})
        with written.file(_MODEL_FILE) as file:
            file.append(model.SerializeToString())
            onnx.checker.check_model(file.named())
            written.commit(_MODEL_FILE, file)
    return written, notes + _notes(source)


def _quantizes_inputs(source, target, inputs):
    if target.static_inputs_only and inputs == "f32":
        raise SettingError(f"--inputs f32: {target.name} computes with quantized inputs alone")
    if inputs != "auto":
        return inputs == "file"
    stored = any(tensor.act == "tensor" for tensor in source.tensors.values())
    return target.contrib or target.static_inputs_only or stored


def _graph_options(source, target, inputs, past, tokens, context):
    config, most = source.config, source.config.context
    context = context or most
    if context > most and config.learned_positions:
        raise SettingError(f"-c {context}: the model has {most} positions")
    if target.fixed_shape and not tokens:
        raise SettingError(f"--tokens: {target.name} takes graphs of fixed sizes; say how many tokens one has")
    if target.contrib and tokens:
        raise SettingError(f"--tokens {tokens}: {target.name} takes graphs with open sizes")
    if target.contrib and not past:
        raise SettingError(f"a graph without past keys and values: {target.name} takes graphs with them")
    if tokens > context:
        raise SettingError(f"--tokens {tokens}: the context is {context}")
    if config.heads // config.kv_heads * tokens * tokens > _MOST_TABLE_NUMBERS:
        raise SettingError(f"--tokens {tokens}: the mask of a graph of fixed sizes has a number for each pair of "
                           f"tokens, here more than {_MOST_TABLE_NUMBERS}")
    if target.contrib and source.rotary and context * (config.head_dim // 2) > _MOST_TABLE_NUMBERS:
        raise SettingError(f"-c {context}: tables of cosines would have more than {_MOST_TABLE_NUMBERS} "
                           "numbers; say fewer positions")
    return GraphOptions(past and not tokens, _quantizes_inputs(source, target, inputs), tokens, context)


def _notes(source):
    """Tensors that take more room than in the file."""
    floats = Counter(tensor.scheme for tensor in source.tensors.values()
                     if not tensor.codes and tensor.scheme not in ("f32", "f16", "bf16"))
    notes = [f"{count} tensors of type {scheme} are written as f32: ONNX has no such codes"
             for scheme, count in sorted(floats.items())]
    narrow = sum(1 for tensor in source.tensors.values() if tensor.codes and tensor.stored_bits < 4)
    return notes + [f"{narrow} tensors of 2 and 3 bits take 4 bits in the graph"] * (narrow > 0)


def _genai_files(source, context, notes):
    text = json.dumps(_genai_config(source, context), indent=2, ensure_ascii=False) + "\n"
    return {"genai_config.json": text, **tokenizer_files(source, "genai", notes)}


def _genai_config(source, context):
    config, ends = source.config, source.end_tokens
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": _MODEL_FILE,
        "head_size": config.head_dim,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "num_hidden_layers": len(source.layers),
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                   "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value"}}
    if config.learned_positions:
        decoder["inputs"]["position_ids"] = "position_ids"
    # The type "llama" works for all decoders that have these inputs.
    model = {"type": "llama", "context_length": context, "vocab_size": config.vocab, "decoder": decoder,
             "eos_token_id": ends[0] if len(ends) == 1 else ends, "pad_token_id": ends[0] if ends else 0}
    if source.bos >= 0:
        model["bos_token_id"] = source.bos
    sampling = source.facts["sampling"]
    samples = sampling.get("temperature", 0) > 0
    search = {"do_sample": samples, "max_length": context, "min_length": 0, "num_beams": 1,
              "num_return_sequences": 1, "past_present_share_buffer": True, "repetition_penalty": 1.0,
              "temperature": sampling["temperature"] if samples else 1.0,
              "top_k": sampling.get("top_k", 50) if samples else 1,
              "top_p": sampling.get("top_p", 1.0) if samples else 1.0}
    return {"model": model, "search": search}
