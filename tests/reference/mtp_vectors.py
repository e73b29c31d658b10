#!/usr/bin/env python3
"""Writes mtp_vectors.h: what a head of multi-token prediction says, computed with torch.

    pip install torch transformers==5.24.0 && ./mtp_vectors.py > mtp_vectors.h

The trunk is transformers' Qwen3.5 in f32. transformers has no such head: it is computed here from
its formula (Qwen3.5's checkpoints; DeepSeek-V3 report, section 2.2):

    y_t = layer(fc([norm(embedding of x_{t+1}); norm(h_t)])), logits = head(norm(y_t))

h_t is the trunk's hidden state after its final norm; a further guess reads norm(y_t) for h. The
weights are those of RandomCheckpoint with Numbers::by_name, which mtp_test.cpp writes to a folder.
"""
import math

import numpy as np
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

CONFIG = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32, vocab_size=96, max_position_embeddings=64, rms_norm_eps=1e-6, hidden_act="silu",
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
              linear_conv_kernel_dim=4, tie_word_embeddings=False,
              rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25})
W, F, H, KV, D, V = 64, 96, 4, 2, 32, 96
KEYS, VALUES, VALUE_HEADS = 32, 64, 4
EPS, ROTARY = 1e-6, 8
PROMPT = [5, 17, 3, 88, 41, 9, 60, 17, 3, 2, 77]


def numbers(name, shape, scale, offset=0.0):
    """offset + scale * u, u in [-1, 1) from the upper bits of a linear congruence that begins with the name's FNV-1a."""
    x = 0xcbf29ce484222325
    for byte in name.encode():
        x = (x ^ byte) * 0x100000001b3 % 2**64
    out = []
    for _ in range(math.prod(shape)):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(offset + scale * ((x >> 40) / 2**23 - 1))
    return torch.from_numpy(np.array(out, np.float32).reshape(shape))


def linear(name, n, k):
    return numbers(name + ".weight", [n, k], np.float32(np.float32(0.3) / np.sqrt(np.float32(k) / np.float32(16))))


def attention(at):
    return {at + "self_attn.q_proj.weight": linear(at + "self_attn.q_proj", 2 * H * D, W),
            at + "self_attn.k_proj.weight": linear(at + "self_attn.k_proj", KV * D, W),
            at + "self_attn.v_proj.weight": linear(at + "self_attn.v_proj", KV * D, W),
            at + "self_attn.q_norm.weight": numbers(at + "self_attn.q_norm.weight", [D], np.float32(0.1)),
            at + "self_attn.k_norm.weight": numbers(at + "self_attn.k_norm.weight", [D], np.float32(0.1)),
            at + "self_attn.o_proj.weight": linear(at + "self_attn.o_proj", W, H * D)}


def delta(at):
    at += "linear_attn."
    out = {at + name + ".weight": linear(at + name, n, k) for name, n, k in (
        ("in_proj_qkv", 2 * KEYS + VALUES, W), ("in_proj_z", VALUES, W), ("in_proj_b", VALUE_HEADS, W),
        ("in_proj_a", VALUE_HEADS, W), ("out_proj", W, VALUES))}
    out[at + "conv1d.weight"] = numbers(at + "conv1d.weight", [2 * KEYS + VALUES, 1, 4], 0.5)
    out[at + "A_log"] = numbers(at + "A_log", [VALUE_HEADS], 0.5)
    out[at + "dt_bias"] = numbers(at + "dt_bias", [VALUE_HEADS], 0.5)
    out[at + "norm.weight"] = numbers(at + "norm.weight", [16], np.float32(0.1), 1.0)
    return out


def layer(at, mixer):
    out = {at + name + ".weight": numbers(at + name + ".weight", [W], np.float32(0.1))
           for name in ("input_layernorm", "post_attention_layernorm")}
    out |= mixer(at)
    for name, n, k in (("gate_proj", F, W), ("up_proj", F, W), ("down_proj", W, F)):
        out[at + f"mlp.{name}.weight"] = linear(at + "mlp." + name, n, k)
    return out


weights = {"model.embed_tokens.weight": numbers("model.embed_tokens.weight", [V, W], 1.0),
           "model.norm.weight": numbers("model.norm.weight", [W], np.float32(0.1)),
           "lm_head.weight": numbers("lm_head.weight", [V, W], np.float32(0.3))}
for index in range(4):
    weights |= layer(f"model.layers.{index}.", attention if index == 3 else delta)
mtp = layer("mtp.layers.0.", attention)
for part in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
    mtp[f"mtp.{part}.weight"] = numbers(f"mtp.{part}.weight", [W], np.float32(0.1))
mtp["mtp.fc.weight"] = linear("mtp.fc", W, 2 * W)

trunk = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**CONFIG)).float().eval()
trunk.load_state_dict(weights)


def norm(x, name):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * (1 + mtp[name])


def turned(x, positions):
    """RoPE on the first dims of heads [T, heads, D]."""
    half = ROTARY // 2
    angles = positions[:, None].float() * (1e4 ** (-torch.arange(half).float() * 2 / ROTARY))[None]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:ROTARY]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., ROTARY:]], -1)


def head(tokens, hidden):
    """Logits and norm(y) of each row; tokens [T], hidden [T, W] of the tokens before them."""
    at = "mtp.layers.0."
    e = weights["model.embed_tokens.weight"][tokens]
    x = torch.cat([norm(e, "mtp.pre_fc_norm_embedding.weight"), norm(hidden, "mtp.pre_fc_norm_hidden.weight")], -1)
    x = x @ mtp["mtp.fc.weight"].T
    y = norm(x, at + "input_layernorm.weight")
    count = len(tokens)
    q, gate = (y @ mtp[at + "self_attn.q_proj.weight"].T).view(count, H, 2 * D).split(D, -1)
    k = (y @ mtp[at + "self_attn.k_proj.weight"].T).view(count, KV, D)
    v = (y @ mtp[at + "self_attn.v_proj.weight"].T).view(count, KV, D)
    positions = torch.arange(count)
    q = turned(norm(q, at + "self_attn.q_norm.weight"), positions)
    k = turned(norm(k, at + "self_attn.k_norm.weight"), positions)
    k, v = k.repeat_interleave(H // KV, 1), v.repeat_interleave(H // KV, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(D)
    scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -math.inf)
    out = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v) * torch.sigmoid(gate)
    x = x + out.reshape(count, H * D) @ mtp[at + "self_attn.o_proj.weight"].T
    y = norm(x, at + "post_attention_layernorm.weight")
    gated = torch.nn.functional.silu(y @ mtp[at + "mlp.gate_proj.weight"].T) * (y @ mtp[at + "mlp.up_proj.weight"].T)
    x = x + gated @ mtp[at + "mlp.down_proj.weight"].T
    y = norm(x, "mtp.norm.weight")
    return y @ weights["lm_head.weight"].T, y


with torch.no_grad():
    ids = torch.tensor(PROMPT)
    hidden = trunk.model(ids[None]).last_hidden_state[0]
    drawn = int((hidden[-1] @ weights["lm_head.weight"].T).argmax())
    tokens = torch.cat([ids[1:], torch.tensor([drawn])])
    logits, y = head(tokens, hidden)
    guesses, states, text = [int(logits[-1].argmax())], hidden, tokens
    for _ in range(2):  # each reads what the head made of the guess before
        states = torch.cat([states, y[-1:]])
        text = torch.cat([text, torch.tensor(guesses[-1:])])
        last, y = head(text, states)
        guesses.append(int(last[-1].argmax()))


def numbers_text(values):
    return ", ".join(f"{float(x):.6g}f" for x in values)


print("// Made by mtp_vectors.py with torch and transformers 5.24.\n#pragma once\n\n#include <array>\n")
print("namespace leq::test {\n")
print(f"inline constexpr std::array<int, {len(PROMPT)}> kMtpPrompt = {{{', '.join(map(str, PROMPT))}}};")
print(f"inline constexpr int kMtpDrawn = {drawn};  // by the trunk after the prompt")
print(f"inline constexpr std::array<int, 3> kMtpGuesses = {{{', '.join(map(str, guesses))}}};")
print("// The head's logits beside the prompt's first, fifth and last hidden state.")
print(f"inline constexpr std::array<int, 3> kMtpRows = {{0, 4, {len(PROMPT) - 1}}};")
print("// clang-format off")
print(f"inline constexpr float kMtpLogits[3][{V}] = {{")
for row in (0, 4, len(PROMPT) - 1):
    print("    {" + numbers_text(logits[row]) + "},")
print("};\n// clang-format on\n\n}  // namespace leq::test")
