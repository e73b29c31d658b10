"""Hugging Face's config.json and generation_config.json for a .leq file, for transformers 4 and 5."""

from types import SimpleNamespace

from ..errors import InputError


def _common_layers(source):
    """The configuration that all layers of each kind share, because transformers has one per kind; `window` is that of
    the layers that have one."""
    family, kinds = source.config.family, {}
    for layer in source.layers:
        for part in (layer.mixer, layer.mlp):
            if kinds.setdefault(part["kind"], {**part, "window": 0}) != {**part, "window": 0}:
                raise InputError(f"{family}: layers of one kind that differ in more than their windows have no class "
                                 "in transformers")
    windows, window = _windows(source), 0
    for index, own in enumerate(windows):
        if own and window and own != window:
            raise InputError(f"layer {index}: window {own} where another layer has {window}")
        window = max(window, own)
    # What a model without such layers is taken to have.
    attention = {"qk_norm": False, "qkv_bias": False, "output_bias": False, **kinds.get("attention", {})}
    mlp = kinds.get("dense", {"hidden": 0, "gated": True, "bias": False})
    return SimpleNamespace(attention=attention, delta=kinds.get("delta_net"), mlp=mlp, experts=kinds.get("experts"),
                           short_conv="short_conv" in kinds, window=window, all_windows=all(own == window for own in windows))


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
    config = source.config
    if config.post_norm_eps or config.logit_cap:
        raise InputError(f"{config.family}: norms behind sublayers and capped logits are not written back")
    common = _common_layers(source)
    if common.short_conv:
        raise InputError(f"{config.family}: short convolutions are not written back")
    if common.attention.get("sinks"):
        raise InputError(f"{config.family}: attention sinks and biases of experts are not written back")
    own_layers = (common.delta or common.experts or {"temperature", "rotary_dims"} & common.attention.keys() or
                  config.rope_scaling["type"] == "longrope")
    checkpoint = source.checkpoint("" if own_layers else _model_type(config, common))
    _check_biases(checkpoint, common)
    return checkpoint


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


def _rope_parameters(config, attention):
    scaling, json = config.rope_scaling, {"rope_theta": config.rope_theta}
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
            **{keys[name]: value for name, value in values.items() if keys[name]}}
    if checkpoint["rotary"]:
        json["rope_parameters"] = _rope_parameters(config, common.attention)
        json["rope_theta"] = config.rope_theta
        if config.rope_scaling["type"] != "none":
            json["rope_scaling"] = _rope_parameters(config, common.attention)
        if config.rope_scaling["type"] == "longrope":
            json["original_max_position_embeddings"] = config.rope_scaling["original_context"]
    _add_windows(source, checkpoint["windows"], common.window, json)
    if common.delta and "delta" in keys:
        _add_delta(source, keys["delta"], common.delta, json)
    if common.experts and "experts" in keys:
        _add_experts(source, keys["experts"], common.experts, json)
    return {**json, **_special_tokens(source)}


def generation_config(source):
    json = dict(source.facts["sampling"])
    if "temperature" in json:
        json["do_sample"] = json["temperature"] > 0
        if not json["do_sample"]:
            del json["temperature"]
    return {**json, **_special_tokens(source)}
