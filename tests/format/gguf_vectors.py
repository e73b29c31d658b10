#!/usr/bin/env python3
"""Writes gguf_vectors.h: hashes of what gguf-py (PyPI: gguf) makes of random blocks of each type.

    pip install gguf numpy && ./gguf_vectors.py > gguf_vectors.h
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

BLOCKS = 500
# Where a block has f16 numbers, which must be finite: the top bit of the exponent is cleared.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
          "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
          "IQ1_M": [54], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": []}


def random_bytes(count):
    """The upper bytes of x = 6364136223846793005 x + 1442695040888963407 mod 2^64, from x = 1."""
    out = bytearray()
    x = 1
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(x >> 56)
    return bytes(out)


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


print("// Created by gguf_vectors.py with gguf-py's dequantize.\n#pragma once\n")
print("#include <cstdint>\n#include <string_view>\n#include <vector>\n")
print("namespace leq::test {\n")
print("struct GgufVector {\n  std::string_view type;\n  std::vector<int> halves;  // offsets in a block")
print("  std::uint64_t hash;       // FNV-1a of the f32 bytes of all blocks, with -0 as 0\n"
      "  float first, last;\n};\n")
print(f"inline constexpr int kGgufVectorBlocks = {BLOCKS};\n")
print("inline const std::vector<GgufVector> kGgufVectors = {")
for name, halves in HALVES.items():
    kind = Type[name]
    _, size = GGML_QUANT_SIZES[kind]
    blocks = np.frombuffer(random_bytes(BLOCKS * size), np.uint8).reshape(BLOCKS, size).copy()
    for at in halves:
        blocks[:, at + 1] &= 0xBF
    if name == "MXFP4":
        blocks[:, 0] = 100 + blocks[:, 0] % 64  # exponents that f32 and their neighbours hold
    values = dequantize(blocks, kind).astype(np.float32).reshape(-1) + np.float32(0)
    print(f'    {{"{name}", {{{", ".join(map(str, halves))}}}, 0x{fnv(values.tobytes()):016x}, '
          f"{float(values[0])!r}f, {float(values[-1])!r}f}},")
print("};\n\n}  // namespace leq::test")
