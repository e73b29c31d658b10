"""Hugging Face's config.json and generation_config.json for a .leq file, for transformers 4 and 5."""

import math
from types import SimpleNamespace

from ..errors import InputError
from .source import activation_of

_BY_LAYER = {"window": 0, "rotary": True, "rope": 0}  # what layers of one kind may differ in


def _common_layers(source):
    """The configuration that all layers of each kind share, because transformers has one per kind; `window` is that of
    the layers that have one."""
    family, kinds = source.config.family, {}
    for layer in source.layers:
        for part in (layer.mixer, layer.mlp):
            if kinds.setdefault(part["kind"], {**part, **_BY_LAYER}) != {**part, **_BY_LAYER}:
                raise InputError(f"{family}: layers of one kind that differ in more than windows and RoPE have no "
                                 "class in transformers")
    windows, window = _windows(source), 0
    for index, own in enumerate(windows):
        if own and window and own != window:
            raise InputError(f"layer {index}: window {own} where another layer has {window}")
        window = max(window, own)
    # What a model without such layers is taken to have.
    attention = {"qk_norm": False, "qkv_bias": False, "output_bias": False, **kinds.get("attention", {})}
    mlp = kinds.get("dense", {"hidden": 0, "gated": True, "bias": False})
    return SimpleNamespace(attention=attention, delta=kinds.get("delta_net"), mlp=mlp, experts=kinds.get("experts"),
                           short_conv=kinds.get("short_conv"), window=window,
                           all_windows=all(own == window for own in windows))


def _windows(source):
    return [layer.mixer.get("window", 0) for layer in source.layers]


def _model_type(config, common):
    if not common.mlp["gated"]:
        return "gpt2"
    if common.attention["qk_norm"]:
        return "qwen3"
    if common.attention["qkv_bias"] and not common.attention["output_bias"]:
        return "qwen2"
    if common.window and common.all_windows:
        return "mistral"
    if common.window:
        raise InputError(f"{config.family}: windows in some layers alone")
    return "llama"


def family_of(source):
    """How the class of transformers that computes the model stores it (Source.checkpoint). Raises an InputError naming
    what no class has: added biases, differing layers."""
    config, common = source.config, _common_layers(source)
    own_keys = _own_keys(source, common)
    own_layers = (own_keys or common.delta or common.experts or
                  {"temperature", "rotary_dims"} & common.attention.keys() or
                  source.rotary and source.rope_rule(0)["rope_scaling"]["type"] == "longrope")
    checkpoint = source.checkpoint("" if own_layers else _model_type(config, common))
    if own_keys and checkpoint["model_type"] not in _OWN_KEYS:
        raise InputError(f"{config.family}: {own_keys} are not written back")
    _check_biases(checkpoint, common)
    return checkpoint


def _own_keys(source, common):
    """What only the keys of some families say; "": nothing."""
    config, attention = source.config, common.attention
    rotary = {layer.mixer["rotary"] for layer in source.layers if "rotary" in layer.mixer}
    return ", ".join(name for name, there in (
        ("norms behind sublayers", config.post_norm_eps), ("capped logits", config.logit_cap),
        ("scaled embeddings", config.embedding_scale != 1), ("scaled queries", attention.get("query_scale")),
        ("attention sinks", attention.get("sinks")), ("short convolutions", common.short_conv),
        ("layers with other RoPE", len(source.facts["ropes"]) > 1),
        ("layers without RoPE", not config.learned_positions and False in rotary),
        ("activations", activation_of(common.mlp) != ("silu" if common.mlp["gated"] else "gelu_tanh") or
         activation_of(common.experts or {}) != "silu")) if there)


def _whole(value):
    """Of a number that is whole but for its rounding, the int that it was."""
    return round(value) if math.isclose(value, round(value), rel_tol=1e-9) else value


def _near(found, expected):
    return math.isclose(found, expected, rel_tol=1e-6)


def _gemma3_keys(source, common, json):
    config, limit = source.config, source.config.logit_cap
    if not _near(config.embedding_scale, math.sqrt(config.width)) or not _near(config.post_norm_eps, config.norm_eps):
        raise InputError(f"{config.family}: factors or eps other than those of its class in transformers")
    if limit and limit["scale"] != 1:
        raise InputError(f"{config.family}: a factor on logits before their cap, which its class has not")
    scale = common.attention.get("query_scale")
    json["query_pre_attn_scalar"] = _whole(scale ** -2) if scale else config.head_dim
    json["final_logit_softcapping"] = limit["cap"] if limit else None
    rules = {}
    for layer in source.layers:
        kind = "sliding_attention" if layer.mixer["window"] else "full_attention"
        if rules.setdefault(kind, layer.mixer["rope"]) != layer.mixer["rope"]:
            raise InputError(f"{config.family}: layers of one kind that differ in RoPE")
    for kind in ("sliding_attention", "full_attention"):
        rules.setdefault(kind, next(iter(rules.values())))
    json["rope_parameters"] = {kind: _rope_parameters(config, source.rope_rule(rule), common.attention)
                               for kind, rule in rules.items()}
    full, near = (source.rope_rule(rules[kind]) for kind in ("full_attention", "sliding_attention"))
    json.update(rope_theta=full["rope_theta"], rope_local_base_freq=near["rope_theta"], rope_scaling=None)
    if full["rope_scaling"]["type"] != "none":
        json["rope_scaling"] = json["rope_parameters"]["full_attention"]
    _add_layer_types(source, common.window, json)


def _granite_keys(source, common, json):
    """The stream is that of the file: a factor on sublayer outputs is part of others there."""
    json.update(embedding_multiplier=source.config.embedding_scale, residual_multiplier=1.0, logits_scaling=1.0,
                attention_multiplier=common.attention.get("query_scale") or source.config.head_dim ** -0.5)


def _granite4_keys(source, common, json):
    _granite_keys(source, common, json)
    json.update(num_local_experts=0, layer_types=["attention"] * len(source.layers),
                position_embedding_type="rope" if source.rotary else "nope")


def _smollm3_keys(source, common, json):
    json["no_rope_layers"] = [int(layer.mixer["rotary"]) for layer in source.layers]
    json["use_sliding_window"] = common.window > 0
    _add_layer_types(source, common.window, json)


def _gpt_oss_keys(source, common, json):
    _add_layer_types(source, common.window, json)


def _lfm2_keys(source, common, json):
    json.update(conv_L_cache=common.short_conv["taps"], conv_bias=False, block_auto_adjust_ff_dim=False,
                layer_types=["conv" if layer.mixer["kind"] == "short_conv" else "full_attention"
                             for layer in source.layers])


def _lfm2_moe_keys(source, common, json):
    _lfm2_keys(source, common, json)
    dense = json.pop("mlp_only_layers")
    if dense != list(range(len(dense))):
        raise InputError(f"{source.config.family}: dense MLPs elsewhere than in the first layers")
    json.update(num_dense_layers=len(dense), use_expert_bias=common.experts.get("choice_bias", False),
                routed_scaling_factor=common.experts.get("weight_scale", 1.0))


_OWN_KEYS = {"gemma3_text": _gemma3_keys, "granite": _granite_keys, "granitemoehybrid": _granite4_keys,
             "smollm3": _smollm3_keys, "gpt_oss": _gpt_oss_keys, "lfm2": _lfm2_keys, "lfm2_moe": _lfm2_moe_keys}


def _check_biases(checkpoint, common):
    qkv, output = common.attention["qkv_bias"], common.attention["output_bias"]
    if checkpoint["keys"]["attention_bias"] is None:
        wrong = (qkv, output) != (checkpoint["qkv_bias"], checkpoint["output_bias"])
        what = "biases of attention"
    else:
        wrong, what = qkv != output, "biases of some linears of attention alone"
    if not wrong and checkpoint["keys"]["mlp_bias"] is None:
        wrong, what = common.mlp["bias"] != checkpoint["mlp_bias"], "biases of the MLP"
    if wrong:
        raise InputError(f"{checkpoint['family']}: {what} that this file has and the class of transformers has not; "
                         "quantize by a method that adds no biases")


def _rope_parameters(config, rule, attention):
    scaling, json = rule["rope_scaling"], {"rope_theta": rule["rope_theta"]}
    if attention.get("rotary_dims"):
        json["partial_rotary_factor"] = attention["rotary_dims"] / config.head_dim
    if "temperature" in attention:
        json["llama_4_scaling_beta"] = attention["temperature"]["beta"]
        json["original_max_position_embeddings"] = attention["temperature"]["period"]
    kind = scaling["type"]
    if kind == "none":
        return {**json, "rope_type": "default"}
    json.update(rope_type=kind, factor=scaling["factor"])
    if scaling["original_context"]:
        json["original_max_position_embeddings"] = scaling["original_context"]
    if kind == "llama3":
        json.update(low_freq_factor=scaling["low_freq_factor"], high_freq_factor=scaling["high_freq_factor"])
    if kind == "yarn":
        json.update({key: scaling[key] for key in ("beta_fast", "beta_slow", "truncate")})
    if kind == "longrope":
        json.update({key: scaling[key] for key in ("short_factor", "long_factor")})
    if kind in ("yarn", "longrope"):
        json.update({key: scaling[key] for key in ("attention_factor", "mscale", "mscale_all_dim") if scaling[key] > 0})
    return json


def _add_windows(source, rule, window, json):
    if rule == "none":
        return
    json["sliding_window"] = window or None
    if rule != "all_layers":
        json["use_sliding_window"] = window > 0
        _add_layer_types(source, window, json)


def _add_layer_types(source, window, json):
    if window:
        json["sliding_window"] = window
    json["layer_types"] = ["sliding_attention" if own else "full_attention" for own in _windows(source)]


def _add_delta(source, keys, delta, json):
    json.update({keys[name]: delta[name] for name in keys})
    json["layer_types"] = ["linear_attention" if layer.mixer["kind"] == "delta_net" else "full_attention"
                           for layer in source.layers]


def _add_experts(source, keys, experts, json):
    for name in ("experts", "active", "hidden", "normalized", "shared_hidden"):
        if keys[name]:
            json[keys[name]] = experts[name]
    dense = [index for index, layer in enumerate(source.layers) if layer.mlp["kind"] == "dense"]
    if dense and not keys["dense_layers"]:
        raise InputError(f"{source.config.family}: some layers have no experts")
    if keys["sparse_step"]:
        json[keys["sparse_step"]] = 1
    if keys["dense_layers"]:
        json[keys["dense_layers"]] = dense


def _special_tokens(source):
    ends, json = source.end_tokens, {}
    if source.has_tokenizer and source.bos >= 0:
        json["bos_token_id"] = source.bos
    if source.has_tokenizer and ends:
        json["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return json


def hf_config(source, checkpoint):
    config, keys, common = source.config, checkpoint["keys"], _common_layers(source)
    values = {"width": config.width, "layers": len(source.layers), "heads": config.heads, "kv_heads": config.kv_heads,
              "head_dim": config.head_dim, "vocab": config.vocab, "context": config.context,
              "norm_eps": config.norm_eps, "activation": checkpoint["activation"],
              "attention_bias": common.attention["qkv_bias"], "mlp_bias": common.mlp["bias"]}
    if common.mlp["hidden"]:
        values["hidden"] = common.mlp["hidden"]
    json = {"architectures": [checkpoint["architecture"]], "model_type": checkpoint["model_type"],
            "tie_word_embeddings": config.tied, "dtype": "float32", "torch_dtype": "float32",
            "pad_token_id": None,  # some classes have one of their own, which small vocabularies lack
            **{keys[name]: value for name, value in values.items() if keys[name]}}
    if source.rotary:
        rule = source.rope_rule(0)
        json["rope_parameters"] = _rope_parameters(config, rule, common.attention)
        json["rope_theta"] = rule["rope_theta"]
        if rule["rope_scaling"]["type"] != "none":
            json["rope_scaling"] = json["rope_parameters"]
        if rule["rope_scaling"]["type"] == "longrope":
            json["original_max_position_embeddings"] = rule["rope_scaling"]["original_context"]
    _add_windows(source, checkpoint["windows"], common.window, json)
    if common.delta and "delta" in keys:
        _add_delta(source, keys["delta"], common.delta, json)
    if common.experts and "experts" in keys:
        _add_experts(source, keys["experts"], common.experts, json)
    if checkpoint["model_type"] in _OWN_KEYS:
        _OWN_KEYS[checkpoint["model_type"]](source, common, json)
    return {**json, **_special_tokens(source)}


def generation_config(source):
    json = dict(source.facts["sampling"])
    if "temperature" in json:
        json["do_sample"] = json["temperature"] > 0
        if not json["do_sample"]:
            del json["temperature"]
    return {**json, **_special_tokens(source)}
