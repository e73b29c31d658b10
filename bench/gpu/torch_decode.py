"""A token of llama-7b's shape with PyTorch's torch.compile, as a yardstick for the same GPU and minutes.

Weights are random, in bf16 and as int8 codes with one scale per row that are converted in the matmul
(weight-only int8). One sequence has 2,048 positions of bf16 keys and values. Each layer is compiled
once; the 32 layers and the head are one CUDA graph, and the time is the median of 50 replays.
Prints a Markdown table. Needs PyTorch with CUDA and Triton.
"""
import statistics
import sys

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, WIDTH, VOCAB, DEPTH = 32, 4096, 32, 11008, 32000, 2048
if "--tiny" in sys.argv:  # to test this script without a GPU
    LAYERS, HIDDEN, HEADS, WIDTH, VOCAB, DEPTH = 2, 64, 2, 96, 128, 16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {"qkv": (3 * HIDDEN, HIDDEN), "o": (HIDDEN, HIDDEN), "gate_up": (2 * WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}


def weight(rows, columns, int8):
    if not int8:
        return (torch.randn(rows, columns, device=DEVICE) * 0.02).to(torch.bfloat16), None
    codes = torch.randint(-127, 128, (rows, columns), dtype=torch.int8, device=DEVICE)
    return codes, torch.full((rows,), 2e-4, dtype=torch.bfloat16, device=DEVICE)


def linear(x, codes, scales):
    return F.linear(x, codes) if scales is None else F.linear(x, codes.to(x.dtype)) * scales


def layer(x, weights, gain, keys, values):
    """x [1, HIDDEN]; keys, values [1, HEADS, DEPTH + 1, HIDDEN / HEADS], of which the last is written."""
    q, k, v = linear(F.rms_norm(x, (HIDDEN,), gain), *weights["qkv"]).view(3, 1, HEADS, 1, -1)
    keys[:, :, -1:] = k
    values[:, :, -1:] = v
    mixed = F.scaled_dot_product_attention(q, keys, values).reshape(1, HIDDEN)
    x = x + linear(mixed, *weights["o"])
    gate, up = linear(F.rms_norm(x, (HIDDEN,), gain), *weights["gate_up"]).chunk(2, dim=-1)
    return x + linear(F.silu(gate) * up, *weights["down"])


def measure(int8):
    gain = torch.ones(HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    layers = [{name: weight(*size, int8) for name, size in SIZES.items()} for _ in range(LAYERS)]
    caches = torch.randn(LAYERS, 2, 1, HEADS, DEPTH + 1, HIDDEN // HEADS, dtype=torch.bfloat16, device=DEVICE)
    head = weight(VOCAB, HIDDEN, int8)
    x = torch.randn(1, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    one_layer, last = torch.compile(layer, dynamic=False), torch.compile(linear, dynamic=False)

    def token():
        y = x
        for weights, cache in zip(layers, caches):
            y = one_layer(y, weights, gain, cache[0], cache[1])
        return last(y, *head)

    read = sum(t.numel() * t.element_size() for w in [*layers, {"head": head}] for t in (p[0] for p in w.values()))
    read += caches.numel() * caches.element_size()
    if DEVICE == "cpu":
        token()
        return 1.0, read
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            token()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token()
    times = []
    for _ in range(50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times), read


def main():
    torch._inductor.config.coordinate_descent_tuning = True
    print(f"PyTorch {torch.__version__}\n\n| weights | ms a token | tokens/s | GB/s |\n| --- | --- | --- | --- |")
    with torch.no_grad():
        for int8 in (False, True):
            seconds, read = measure(int8)
            name = "int8, weight-only" if int8 else "bf16"
            print(f"| {name} | {seconds * 1000:.3f} | {1 / seconds:.0f} | {read / seconds * 1e-9:.0f} |", flush=True)


if __name__ == "__main__":
    main()
