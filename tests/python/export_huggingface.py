"""Exported folders in transformers, beside leq. Skipped without torch and transformers; what needs compressed-tensors
is left out without it."""

import importlib.util
import shutil

from export_models import GREEDY, TOLERANCE, Work, check, finish, models, skip, smollm2

try:
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    skip(f"this Python has no {error.name}")

# Inputs in int8: transformers divides by (127 + 128) / 2 where leq divides by 127.
KL_TOLERANCE = 0.01
LONG = 200  # more than the window of mistral-tiny
TEXT = "Once upon a time  there was a king's son, 12345 na\u00efve \u65e5\u672c\u8a9e \U0001f642.\n\n\tEnd"


def load(folder):
    model, said = transformers.AutoModelForCausalLM.from_pretrained(folder,
                                                                    output_loading_info=True)
    left = {key: value for key, value in said.items() if value}
    check(not left, f"{folder.name}: every tensor has its place {left or ''}")
    return model


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def written(model, ids):
    """Greedy ids after `ids`, without the penalty that a model's defaults may have."""
    made = model.generate(torch.tensor([ids]), max_new_tokens=GREEDY, do_sample=False, eos_token_id=None,
                          pad_token_id=0, repetition_penalty=1.0)
    return made[0, len(ids):].tolist()


def prompt(work, source, file, model):
    """A tale for a model that is a file; numbers for small ones, which know few words."""
    return work.prose(file, LONG) if source.is_file() else work.ids(model.config.vocab_size, LONG)


def floats(work, source, *flags):
    name = f"{source.name} {' '.join(flags)}"
    file = work.quantized(source, *flags)
    folder = work.exported(file, "--safetensors")
    model = load(folder)
    ids = prompt(work, source, file, model)
    want, _ = work.leq(file, ids)
    worst = np.abs(logits(model, ids) - want).max()
    check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
    work.check_text(file, ids, written(model, ids), name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    check(ids == work.tokens(file, TEXT), f"{name}: tokens")
    if source.is_file():
        return
    original = transformers.AutoTokenizer.from_pretrained(source)
    check(tokenizer.chat_template == original.chat_template, f"{name}: chat template")


def seeded(work, config, changes):
    """A checkpoint of random weights with the storyteller's tokenizer."""
    story = models()[0]
    folder = work.folder / config
    torch.manual_seed(1)
    known = dict(vocab_size=transformers.AutoConfig.from_pretrained(story).vocab_size, hidden_size=64,
                 num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                 intermediate_size=96, max_position_embeddings=512, pad_token_id=0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config, **{**known, **changes}))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1 or name.endswith("bias"):  # gains and biases that no default hides
                value.add_(torch.randn_like(value) * 0.1)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(story / name, folder)
    return folder


EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
             linear_value_head_dim=16, linear_conv_kernel_dim=4)
SHARED = dict(shared_expert_intermediate_size=48)
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.7, logits_scaling=3.0)
OTHERS = {
    "mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(EXPERTS, norm_topk_prob=True, mlp_only_layers=[1]),
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**EXPERTS, **DELTA, **SHARED},
    "qwen3_next": {**EXPERTS, **DELTA, **SHARED, "norm_topk_prob": True},
    "ministral3": dict(rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
        "mscale_all_dim": 1.0}),
    "phi3": dict(original_max_position_embeddings=64, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 64, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "long_factor": [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]}),
    "gemma3_text": dict(sliding_window=24, query_pre_attn_scalar=24, final_logit_softcapping=20.0,
                        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "gpt_oss": dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=24, rope_parameters={
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False, "original_max_position_embeddings": 64}),
    "granite": dict(GRANITE, rms_norm_eps=1e-3),
    "granitemoehybrid": dict(GRANITE, num_local_experts=0, shared_intermediate_size=96, mamba_n_heads=4,
                             position_embedding_type="rope", layer_types=["full_attention"] * 4),
    "smollm3": dict(no_rope_layers=[1, 0, 1, 1]),
    "lfm2": dict(layer_types=["conv", "conv", "full_attention", "conv"]),
    "lfm2_moe": dict(EXPERTS, layer_types=["conv", "full_attention", "conv", "full_attention"], num_dense_layers=1,
                     routed_scaling_factor=1.5),
}


def other_layers(work):
    """Families with parts of their own: random weights through leq and back."""
    for config, changes in OTHERS.items():
        try:
            source = seeded(work, config, changes)
        except (ValueError, KeyError) as unknown:
            print("not in this transformers:", config, unknown)
            continue
        file = work.quantized(source, "--type", "f32")
        model = load(work.exported(file, "--safetensors"))
        ids = work.ids(model.config.vocab_size, LONG)
        original = logits(transformers.AutoModelForCausalLM.from_pretrained(source), ids)
        worst = np.abs(logits(model, ids) - original).max()
        check(worst < TOLERANCE, f"{config}: logits of the checkpoint, off by {worst:.1e}")
        worst = np.abs(work.leq(file, ids)[0] - original).max()
        check(worst < TOLERANCE, f"{config}: logits of leq, off by {worst:.1e}")


def compressed(work, source):
    for kind, act in (("int8", "none"), ("int4-g32", "none"), ("int8-g32", "none"),
                      ("int8", "row"), ("int4-g32", "row")):
        name = f"{source.name} compressed {kind} act {act}"
        if "-g" in kind and source.name == "mistral-tiny":
            continue  # 432 columns, which no group divides
        file = work.quantized(source, "--type", kind, "--act", act)
        model = load(work.exported(file, "--compressed-tensors"))
        ids = prompt(work, source, file, model)
        want, _ = work.leq(file, ids)
        got = logits(model, ids)
        if act == "none":
            worst = np.abs(got - want).max()
            check(worst < TOLERANCE, f"{name}: logits, off by {worst:.1e}")
            work.check_text(file, ids, written(model, ids), name)
        elif source.is_file():
            # One scale for a row of inputs costs a model with outliers more than small ones: by the same
            # weights with f32 inputs, transformers' rule may cost half more than leq's.
            exact, _ = work.leq(work.quantized(source, "--type", kind, "--act", "none"), ids)
            own, kl = work.divergence(exact, want), work.divergence(exact, got)
            check(kl < 1.5 * own, f"{name}: {kl:.5f} nats from f32 inputs, leq {own:.5f}")
        else:
            kl = work.divergence(want, got)
            check(kl < KL_TOLERANCE, f"{name}: {kl:.5f} nats")


def main():
    transformers.logging.set_verbosity_error()
    work = Work()
    for source in models("qwen35-tiny", "qwen3moe-tiny"):
        for kind in ("f32", "int4-g32"):
            floats(work, source, "--type", kind, "--act", "none")
    other_layers(work)
    for source in smollm2():
        floats(work, source, "--type", "int8", "--act", "none")
    floats(work, models()[0], "--type", "uint3-g32", "--act", "none", "--smooth", "0.5")
    if importlib.util.find_spec("compressed_tensors") is None:
        print("not here: compressed-tensors")
        finish()
    for source in [*models(), *smollm2()]:
        if source.name != "gpt2-tiny":
            compressed(work, source)
    finish()


main()
