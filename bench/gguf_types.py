#!/usr/bin/env python3
"""Every GGUF type on one small llama: leq beside transformers on the weights that gguf-py decodes.

gguf_types.py TOOLS MODEL TEXT LIBGGML: TOOLS a folder with leq's tools, MODEL a Hugging Face folder of a llama whose
width is a multiple of 256, LIBGGML a libggml.so, whose ggml_quantize_chunk encodes. Needs gguf, torch, transformers,
safetensors. A row whose length is no multiple of a type's block is Q8_0, as in files of llama-quantize. Columns: the
scheme of layer 0's q; its error in the .leq file; bytes of all matrices' planes by those of the GGUF's; with f32
inputs, perplexity by transformers' less 1, and whether 32 greedy tokens are equal; with int8 inputs the KL from f32 inputs."""
import ctypes, json, os, re, subprocess, sys, tempfile

import gguf, numpy as np, torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOOLS, MODEL, TEXT, LIBRARY = sys.argv[1:5]
TYPES = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K Q3_K Q2_K IQ4_NL IQ4_XS MXFP4".split()
WINDOW, WINDOWS, GREEDY, PROMPT, BOS = 256, 8, 32, "Once upon a time there was a", 1
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.down_proj": "ffn_down",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
config = json.load(open(f"{MODEL}/config.json"))
vocabulary = json.load(open(f"{MODEL}/tokenizer.json"))["model"]["vocab"]
words = sorted(vocabulary, key=vocabulary.get)
ggml = ctypes.CDLL(LIBRARY)


def encode(weight, kind):
    rows, columns = weight.shape
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((rows, columns // block * size), np.uint8)
    ggml.ggml_quantize_chunk(ctypes.c_int(kind), weight.ctypes.data_as(ctypes.c_void_p),
                             out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0), ctypes.c_int64(rows),
                             ctypes.c_int64(columns), None)
    return out


def pairs(weight, heads):  # rows of halves to rows of pairs, as GGUF has q and k
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def halves(weight, heads):
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def add_tokens(writer):
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([-float(i) for i in range(len(words))])
    writer.add_token_types([2 if i == 0 else 3 if i < 3 else 6 if re.fullmatch("<0x..>", t) else 1
                            for i, t in enumerate(words)])
    writer.add_bos_token_id(1), writer.add_eos_token_id(2), writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def write(path, weights, kind):
    """The GGUF file; returns what it decodes to and the bytes of its matrices."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"]), writer.add_context_length(1024)
    writer.add_embedding_length(config["hidden_size"]), writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"]), writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"]), writer.add_rope_freq_base(config["rope_theta"])
    add_tokens(writer)
    decoded, size = {}, 0
    for name, weight in weights.items():
        part = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
        stored = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(part[0])
        stored = stored or f"blk.{part[1]}.{NAMES[part[2]]}"
        if weight.ndim == 1:
            writer.add_tensor(stored + ".weight", weight)
            decoded[name] = weight
            continue
        heads = config["num_attention_heads"] if "q_proj" in name else config["num_key_value_heads"]
        turned = "q_proj" in name or "k_proj" in name
        own = kind if weight.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else Type.Q8_0
        data = encode(np.ascontiguousarray(pairs(weight, heads) if turned else weight), own)
        writer.add_tensor(stored + ".weight", data, raw_dtype=own)
        back = gguf.dequantize(data, own).reshape(weight.shape)
        decoded[name] = halves(back, heads) if turned else back
        size += data.nbytes
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    return decoded, size


def tool(name, *arguments):
    done = subprocess.run([f"{TOOLS}/{name}", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@torch.no_grad()
def expected(decoded, ids, start):
    """transformers: the perplexity of the first windows, and greedy tokens after `start`."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    model.load_state_dict({k: torch.tensor(v) for k, v in decoded.items()}, strict=False)
    model.tie_weights()
    losses = []
    for w in range(WINDOWS):
        window = torch.tensor([ids[w * WINDOW:(w + 1) * WINDOW]])
        logits = model(window).logits[0, :-1].double()
        losses.append(torch.nn.functional.cross_entropy(logits, window[0, 1:]).item())
    greedy = model.generate(torch.tensor([start]), max_new_tokens=GREEDY, do_sample=False, eos_token_id=None,
                            pad_token_id=0)
    return float(np.exp(np.mean(losses))), greedy[0, len(start):].tolist()


def row(kind, weights, folder):
    path = f"{folder}/{kind.name}.gguf"
    decoded, size = write(path, weights, kind)
    for act, out in (["--act", "none"], "none.leq"), ([], "int8.leq"):
        tool("leq-quantize", path, "-o", f"{folder}/{out}", *act)
    inspected = tool("leq-inspect", f"{folder}/int8.leq", "--all")
    q = re.search(r"^layers\.0\.q +\[[^]]*\] +(\S+) +\w+, (exact|off by \S+)", inspected, re.M)
    bytes_of = [int(n.replace(",", "")) for n in re.findall(r"^\S+ +\[\d+, \d+\] .*?([\d,]{4,}) ", inspected, re.M)]
    with open(f"{folder}/prompt.txt", "w") as prompt:
        prompt.write(PROMPT)
    floats = ["-ctk", "f32", "-ctv", "f32"]
    ids, start = ([BOS] + json.loads(tool("leq-inspect", f"{folder}/none.leq", "--tokenize", text))
                  for text in (TEXT, f"{folder}/prompt.txt"))
    measure = ["-f", TEXT, "-c", str(WINDOW), "--chunks", str(WINDOWS), "--join", "none", "-o", "json", *floats,
               "--kl-divergence-base", f"{folder}/base.kl"]
    plain = json.loads(tool("leq-perplexity", "-m", f"{folder}/none.leq", *measure))
    int8 = json.loads(tool("leq-perplexity", "-m", f"{folder}/int8.leq", *measure, "--kl-divergence"))
    perplexity, greedy = expected(decoded, ids, start)
    reply = tool("leq-run", "-m", f"{folder}/none.leq", "--raw", "-p", PROMPT, "-n", str(GREEDY), "--temp", "0", *floats)
    pieces = "".join(words[i] for i in greedy).replace("\u2581", " ")
    same = reply.strip() == (PROMPT + re.sub("<0x(..)>", lambda byte: chr(int(byte[1], 16)), pieces)).strip()
    return (f"| {kind.name} | `{q[1]}` | {q[2]} | {sum(bytes_of) / size:.3f} | {plain['ppl'] / perplexity - 1:+.1e} | "
            f"{'yes' if same else 'no'} | {int8['kl_mean']:.5f} |")


def main():
    weights = {k: v.float().numpy() for k, v in load_file(f"{MODEL}/model.safetensors").items()}
    with tempfile.TemporaryDirectory() as folder:
        for name in TYPES:
            print(row(Type[name], weights, folder), flush=True)


main()
