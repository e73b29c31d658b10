"""Small seeded checkpoints of families that no trained model here has, and what transformers
computes with them: tests/golden/families, read by tests/model/family_golden_test.cpp.

    python transformers_goldens.py ../golden/families    (torch, transformers 5.24)

Weights are stored in bf16 and computed with in f32. golden.json holds `ids`, given as a rule,
the logits of `positions`, and the greedy texts after some prompts.
"""

import json
import pathlib
import sys

import torch
import transformers

VOCAB = 96  # the tokenizer has 94 single characters; texts have no others


def rope(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


def dense(**more):
    return dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4,
                num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
                tie_word_embeddings=False, bos_token_id=None, eos_token_id=1, pad_token_id=None,
                **more)


DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
             linear_value_head_dim=8, linear_conv_kernel_dim=4, num_hidden_layers=4,
             rope_parameters=rope(1e4, partial_rotary_factor=0.25))
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
               shared_expert_intermediate_size=40)


def muse_glimmer():
    text = dense(num_hidden_layers=6, sliding_window=8, rope_parameters=rope(5e4), qk_scale_factor=3.87,
                 output_multiplier=0.35355339059327373, final_logit_softcapping=5.0)
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    config = transformers.MuseGlimmerConfig(
        text_config=text, vision_config=vision, image_token_id=94, video_token_id=95,
        out_hidden_size=64, projector_hidden_size=16, tie_word_embeddings=False)
    return transformers.MuseGlimmerForConditionalGeneration(config)


def ministral3():
    text = dense(num_hidden_layers=2)
    text.update(hidden_size=24, num_attention_heads=2, num_key_value_heads=1,
                max_position_embeddings=262144,
                rope_parameters={
                    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                    "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
                    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})
    return transformers.Ministral3ForCausalLM(transformers.Ministral3Config(**text))


def qwen3_5_moe():
    config = transformers.Qwen3_5MoeTextConfig(**dense(), **DELTA, **EXPERTS)
    return transformers.Qwen3_5MoeForCausalLM(config)


def qwen3_next():
    config = transformers.Qwen3NextConfig(**dense(), **DELTA, **EXPERTS, norm_topk_prob=True)
    return transformers.Qwen3NextForCausalLM(config)


def mixtral():
    config = transformers.MixtralConfig(**dense(num_hidden_layers=2), num_local_experts=4,
                                        num_experts_per_tok=2)
    return transformers.MixtralForCausalLM(config)


def gemma3():
    text = dense(num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=24,
                 layer_types=["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(7)],
                 rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                  "sliding_attention": rope(1e4)})
    text["tie_word_embeddings"] = True
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                  image_size=28, patch_size=14)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4,
                                       image_token_index=94, boi_token_index=95, eoi_token_index=95)
    return transformers.Gemma3ForConditionalGeneration(config)


def gemma4_text(**more):
    """Two kinds of layers, with heads of their own and, in full ones, keys that are values."""
    return dense(num_hidden_layers=6, sliding_window=8, global_head_dim=32, num_global_key_value_heads=1,
                 attention_k_eq_v=True, final_logit_softcapping=12.0,
                 layer_types=["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(6)],
                 ) | {"tie_word_embeddings": True, "pad_token_id": 0} | more


def gemma4():
    vision = dict(patch_size=4, pooling_kernel_size=1, mm_embed_dim=32, mm_posemb_size=8, output_proj_dims=32)
    config = transformers.Gemma4UnifiedConfig(text_config=gemma4_text(), vision_config=vision,
                                              audio_config=dict(audio_embed_dim=16))
    return transformers.Gemma4UnifiedForConditionalGeneration(config)


def gemma4_moe():
    text = gemma4_text(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=24,
                       hidden_size_per_layer_input=0)
    return transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**text))


def gemma4_shared():
    text = gemma4_text(num_kv_shared_layers=3, use_double_wide_mlp=True, attention_k_eq_v=False,
                       num_global_key_value_heads=None, hidden_size_per_layer_input=8,
                       vocab_size_per_layer_input=VOCAB)
    text.update(layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(6)])
    return transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**text))


GRANITE = dict(embedding_multiplier=0.5, attention_multiplier=0.35, residual_multiplier=0.7,
               logits_scaling=3.0, rms_norm_eps=0.05, rope_parameters=rope(5e4))


def granite():
    config = transformers.GraniteConfig(**dense(num_hidden_layers=3), **GRANITE)
    return transformers.GraniteForCausalLM(config)


def granite4():
    config = transformers.GraniteMoeHybridConfig(
        **dense(num_hidden_layers=3), **GRANITE, num_local_experts=0, shared_intermediate_size=40,
        position_embedding_type="rope", layer_types=["full_attention"] * 3, mamba_n_heads=4)
    return transformers.GraniteMoeHybridForCausalLM(config)


def phi3():
    """With LongRoPE's factors of long texts where the text is longer than 32."""
    pairs = range(6)
    config = transformers.Phi3Config(
        **dense(num_hidden_layers=2) | {"hidden_size": 64}, sliding_window=20, original_max_position_embeddings=32,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
                         "short_factor": [1 + 0.1 * i for i in pairs],
                         "long_factor": [1 + 1.5 * i for i in pairs]})
    return transformers.Phi3ForCausalLM(config)


def smollm3():
    config = transformers.SmolLM3Config(**dense(num_hidden_layers=5), rope_parameters=rope(5e4))
    return transformers.SmolLM3ForCausalLM(config)


LFM2 = dict(num_hidden_layers=5, rope_parameters=rope(1e6), layer_types=[
    "conv", "full_attention", "conv", "conv", "full_attention"])


def lfm2():
    text = dense(**LFM2, conv_L_cache=3, block_multiple_of=40)
    text.update(hidden_size=64, intermediate_size=100, tie_word_embeddings=True)
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**text))


def lfm2_moe():
    text = dense(**LFM2, num_dense_layers=1, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
                 routed_scaling_factor=1.5)
    model = transformers.Lfm2MoeForCausalLM(transformers.Lfm2MoeConfig(**text))
    for layer in model.model.layers[1:]:
        layer.feed_forward.expert_bias.copy_(torch.linspace(-0.3, 0.3, 5))
    return model


def gpt_oss():
    text = dense(num_hidden_layers=4, sliding_window=8, num_local_experts=5, num_experts_per_tok=2,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
                                  "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 32})
    text.update(intermediate_size=32)
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(**text))


# Positions whose logits are kept; a text is as long as the last of them needs.
CASES = {
    "muse-glimmer": (muse_glimmer, list(range(65))),
    "ministral-3": (ministral3, [0, 16383, 16384, 32767, 32768]),
    "qwen3.5-moe": (qwen3_5_moe, list(range(65))),
    "qwen3-next": (qwen3_next, list(range(65))),
    "mixtral": (mixtral, list(range(65))),
    "gemma-3": (gemma3, list(range(65))),
    "gemma-4": (gemma4, list(range(65))),
    "gemma-4-moe": (gemma4_moe, list(range(65))),
    "gemma-4-shared": (gemma4_shared, list(range(65))),
    "smollm3": (smollm3, list(range(65))),
    "gpt-oss": (gpt_oss, list(range(65))),
    "lfm2": (lfm2, list(range(65))),
    "lfm2-moe": (lfm2_moe, list(range(65))),
    "phi-3": (phi3, list(range(65))),
    "phi-3-short": (phi3, list(range(32))),
    "granite": (granite, list(range(65))),
    "granite-4": (granite4, list(range(65))),
}


GREEDY = ("gemma-3", "smollm3", "gpt-oss", "phi-3", "granite", "granite-4", "mixtral")


def randomize(model, generator):
    """Weights that make outputs of a size that tests can see; gains around what they are."""
    scales = [(name, scale) for name, scale in model.named_buffers() if name.endswith("layer_scalar")]
    for name, weight in [*model.named_parameters(), *scales]:
        noise = torch.randn(weight.shape, generator=generator)
        if weight.dim() == 1:
            weight.data = weight.data + 0.2 * noise
        elif "embed" in name or "lm_head" in name:
            weight.data = noise
        else:
            weight.data = noise * 1.5 / weight.shape[-1] ** 0.5


def token(i):
    return (i * i * 7 + i * 13 + i // 5) % 94


def greedy_text(model, length):
    """As in the trained models' golden files: tokens are sure up to the first near tie."""
    ids = [token(i) for i in range(length)]
    sure = None
    for count in range(40):
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        logits[[1, 95]] = -torch.inf  # the end token, and an id that is no token
        [first, second], [best, _] = logits.topk(2)
        if sure is None and first - second < 1e-3 * first.abs():
            sure = count
        ids.append(best.item())
    reply = ids[length:]
    sure = len(reply) if sure is None else sure
    return {"ids": ids[:length], "greedy_ids": reply, "greedy_sure_tokens": sure,
            "greedy_sure_text": "".join(chr(33 + i) for i in reply[:sure] if i < 94)}  # 94: <|endoftext|>


def write(folder, make, positions):
    torch.manual_seed(0)
    model = make().eval()
    randomize(model, torch.Generator().manual_seed(len(folder.name)))
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    # Read again: tables of positions are no weights, and would keep bf16's bits.
    model = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[token(i) for i in range(positions[-1] + 1)]])
    with torch.no_grad():
        logits = model(input_ids=ids, logits_to_keep=torch.tensor(positions)).logits[0]
        # Longer than the texts for which Phi-3 has its short factors. An image's token is no text.
        prompts = [greedy_text(model, length) for length in (33, 40, 60)] if folder.name in GREEDY else []
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "vocab.json").write_text(json.dumps({chr(33 + i): i for i in range(94)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    rows = [[float(f"{x:.6g}") for x in row] for row in logits.tolist()]
    (folder / "golden.json").write_text(json.dumps(
        {"transformers": transformers.__version__, "ids": "(i * i * 7 + i * 13 + i // 5) % 94",
         "positions": positions, "logits": rows, "prompts": prompts}) + "\n")
    print(folder.name, "logits up to", logits.abs().max().item())


def main():
    out = pathlib.Path(sys.argv[1])
    for name, (make, positions) in CASES.items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            write(out / name, make, positions)


main()
