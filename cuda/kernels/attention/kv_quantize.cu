// Encodes blocks of positions that a step reads as codes for the first time, from their f16 copies;
// the codes are final. A thread block encodes the keys or the values of one kv head in one layer
// and one block of positions. It finds its block from the runs, so that the launch is the same for
// all steps of a kind.
#include <algorithm>
#include <cmath>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/attention/kv_encode.cuh"
#include "cuda/kernels/attention/kv_packed.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kBlockThreads = 128;
constexpr float kLevels = 15;  // the largest code

// The slots [first, first + count) of one kv head in a page.
struct QuantizedBlock {
  KvCodes codes;
  int dims, first, count, sinks;
  KvHeadPage copy;
  PackedHead page;
  float* scales;  // shared memory: the scales and minima of these slots
  float* minima;

  __device__ __forceinline__ float number(int slot, int c) const {
    const std::byte* const row = copy.numbers + slot * copy.row_bytes;
    return ptx::f16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[c]);
  }
  __device__ __forceinline__ void keep(int at_page, int at_shared, const CodeRange& range) const {
    page.scales[at_page] = range.scale;
    page.minima[at_page] = range.minimum;
    scales[at_shared] = ptx::f16_to_f32(range.scale);
    minima[at_shared] = ptx::f16_to_f32(range.minimum);
  }
};

// One thread per channel computes the channel's range, which excludes sinks.
__device__ void range_keys(const QuantizedBlock& block) {
  const int last = block.first + block.count, begin = max(block.first, block.sinks);
  const int row = block.first / block.codes.block * block.dims;
  for (int c = static_cast<int>(threadIdx.x); c < block.dims; c += kBlockThreads) {
    float low = INFINITY, high = -INFINITY;
    for (int slot = begin; slot < last; ++slot) {
      const float x = block.number(slot, c);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
    block.keep(row + kv_key_end(block.dims, c), c,
               begin < last ? CodeRange(low, high, kLevels) : CodeRange());
  }
}

// One warp per (position, group) computes the group's range.
__device__ void range_values(const QuantizedBlock& block) {
  const int lane = static_cast<int>(threadIdx.x % 32), group = block.codes.group;
  const int groups = block.codes.ends / kKvPageTokens;
  for (int i = static_cast<int>(threadIdx.x / 32); i < block.count * groups;
       i += kBlockThreads / 32) {
    const int slot = block.first + i / groups, from = i % groups * group;
    float low = INFINITY, high = -INFINITY;
    for (int c = from + lane; c < min(from + group, block.dims); c += 32) {
      const float x = block.number(slot, c);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
    const CodeRange range = warp_range(low, high, kLevels);
    if (lane == 0) block.keep(i % groups * kKvPageTokens + kv_value_end(slot), i, range);
  }
}

// Writes the words of the block's codes, one thread per word. A block consists of whole words;
// words of values are interleaved with those of other blocks.
template <KvPart part>
__device__ void write_codes(const QuantizedBlock& block) {
  const KvCodes& codes = block.codes;
  const int groups = codes.ends / kKvPageTokens;
  const int words = static_cast<int>(kv_code_bytes(block.dims)) / 4;
  for (int word = static_cast<int>(threadIdx.x); word < words; word += kBlockThreads) {
    const int slot = kv_code_owner(part, block.dims, word, 0).slot;
    if (slot < block.first || slot >= block.first + block.count) continue;
    std::uint32_t made = 0;
    for (int shift = 0; shift < 32; shift += 4) {
      const KvCodeOwner of = kv_code_owner(part, block.dims, word, shift);
      const bool sink = part == KvPart::keys && of.slot < block.sinks;
      if (sink || of.channel >= block.dims) continue;
      const int at = part == KvPart::keys
                         ? of.channel
                         : (of.slot - block.first) * groups + of.channel / codes.group;
      made |=
          encoded(block.number(of.slot, of.channel), block.scales[at], block.minima[at], kLevels)
          << shift;
    }
    block.page.words[word] = made;
  }
}

template <KvPart part>
__device__ void quantize_block(const KvQuantizeArguments& a, const KvQuantizeLayer& layer,
                               const AttentionRun& run, int first, float* memory) {
  KvPages pages = part == KvPart::keys ? a.keys : a.values;
  KvPages copies = part == KvPart::keys ? a.copied.keys : a.copied.values;
  pages.base = part == KvPart::keys ? layer.keys : layer.values;
  copies.base = part == KvPart::keys ? layer.key_copies : layer.value_copies;
  if (pages.base == nullptr) return;
  const int head = static_cast<int>(blockIdx.y), in_page = first % kKvPageTokens;
  const int page = a.batch.pages[run.pages_at + first / kKvPageTokens];
  const int copy = a.batch.pages[run.copies_at + first / kKvPageTokens];
  if (page < 0 || copy < 0) return;  // outside the window; or encoded earlier
  QuantizedBlock block;
  block.codes = pages.codes;
  block.dims = a.heads.head_dim;
  block.count = part == KvPart::keys ? pages.codes.block : a.copied.residual.block;
  block.sinks = first < kKvPageTokens ? a.copied.residual.sinks : 0;
  block.copy = kv_head_page(copies, copy, a.heads, head);
  block.page = packed_head(pages, page, a.heads, head);
  block.scales = memory;
  // A block of the residual covers one or two blocks of keys, each with its own scales.
  for (block.first = in_page; block.first < in_page + a.copied.residual.block;
       block.first += block.count) {
    block.minima =
        memory +
        (part == KvPart::keys ? block.dims : block.count * (pages.codes.ends / kKvPageTokens));
    if constexpr (part == KvPart::keys) {
      range_keys(block);
    } else {
      range_values(block);
    }
    __syncthreads();
    write_codes<part>(block);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    kv_quantize(const LEQ_GRID_CONSTANT KvQuantizeArguments a, int blocks_of_run) {
  LEQ_BOUNDS(kBlockThreads);
  LEQ_DYNAMIC_SHARED(float, memory);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const AttentionRun& run = a.batch.runs[static_cast<int>(blockIdx.x) / blocks_of_run];
  const KvResidual& residual = a.copied.residual;
  const auto quantized = [&](int length) {
    return max(length - residual.recent, 0) & -residual.block;
  };
  const int begin = quantized(run.first_position), end = quantized(run.first_position + run.rows);
  const int whole = min(run.first_position & -residual.block, end);
  const int first = (a.whole_before ? begin : whole) +
                    static_cast<int>(blockIdx.x) % blocks_of_run * residual.block;
  if (first >= (a.whole_before ? whole : end)) return;
  const KvQuantizeLayer& layer = a.layers[blockIdx.z / 2];
  if (blockIdx.z % 2 == 0) {
    quantize_block<KvPart::keys>(a, layer, run, first, memory);
  } else {
    quantize_block<KvPart::values>(a, layer, run, first, memory);
  }
}

}  // namespace

void launch_kv_quantize(const KvQuantizeArguments& a, rt::Stream& stream) {
  const KvResidual& residual = a.copied.residual;
  // A run of at most `recent` rows never reads codes of the blocks that it closes itself.
  const bool due = a.whole_before ? residual.recent > 0 : a.batch.longest_run > residual.recent;
  if (!residual.copies() || a.batch.tokens <= 0 || a.layer_count == 0 || !due) return;
  const auto dims = static_cast<std::size_t>(a.heads.head_dim);
  const auto block = static_cast<std::size_t>(residual.block);
  const std::size_t groups = static_cast<std::size_t>(a.values.codes.ends) / kKvPageTokens;
  const std::size_t numbers = std::max(dims, block * groups);
  // A run can close at most this many blocks: the first block may have begun in earlier runs.
  const std::int64_t most = a.batch.longest_run / residual.block + 1;
  rt::run(stream,
          {"kv_quantize", rt::grid(a.batch.run_count * most, a.heads.kv_heads, 2 * a.layer_count),
           kBlockThreads, 2 * numbers * sizeof(float), rt::Start::early},
          kv_quantize, a, static_cast<int>(most));
}

}  // namespace leq::LEQ_GPU
